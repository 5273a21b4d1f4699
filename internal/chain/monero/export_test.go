package monero

// SetMaxBlocks sets how many blocks one call may ask the transfers of.
func (m *Chain) SetMaxBlocks(blocks int64) { m.maxBlocks = blocks }

// SetMaxReply sets how many bytes the answer to one such call may have.
func (m *Chain) SetMaxReply(bytes int64) { m.maxReply = bytes }
