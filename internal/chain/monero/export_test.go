package monero

// Stretch sets how many blocks one call may ask the transfers of.
func (m *Chain) Stretch(blocks int64) { m.stretch = blocks }

// Longest sets how many bytes the answer to one such call may have.
func (m *Chain) Longest(bytes int64) { m.longest = bytes }
