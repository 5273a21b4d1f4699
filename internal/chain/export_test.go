package chain

// Stretch sets how many blocks one call may ask the transfers of.
func (m *Monero) Stretch(blocks int64) { m.stretch = blocks }
