module github.com/cardmint/cardmint/client/examples/quickstart

go 1.25

require (
	github.com/cardmint/cardmint/client v0.0.0
	github.com/shopspring/decimal v1.4.0
)

require github.com/google/uuid v1.6.0 // indirect

replace github.com/cardmint/cardmint/client => ../..
