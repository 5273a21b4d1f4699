package server

// CheckContract reports whether a server can be made with a contract.
func CheckContract(yaml []byte) error {
	_, err := loadSpec(yaml)
	return err
}
