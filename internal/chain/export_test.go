package chain

// Stretch sets how many blocks one call may ask the transfers of.
func (m *Monero) Stretch(blocks int64) { m.stretch = blocks }

// Longest sets how many bytes the answer to one such call may have.
func (m *Monero) Longest(bytes int64) { m.longest = bytes }

// Decode decodes an answer.
var Decode = decode
