package server

// CheckContract returns an error if a contract can't be loaded.
func CheckContract(yaml []byte) error {
	_, err := loadSpec(yaml)
	return err
}
