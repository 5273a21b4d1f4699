package monero

// SetMaxBlocks sets the number of blocks per call for transfers.
func (m *Chain) SetMaxBlocks(blocks int64) { m.maxBlocks = blocks }

// SetMaxReply sets the length in bytes of such a call's response.
func (m *Chain) SetMaxReply(bytes int64) { m.maxReply = bytes }
