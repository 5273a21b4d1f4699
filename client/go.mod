module github.com/cardmint/cardmint/client

go 1.25

require (
	github.com/google/uuid v1.6.0
	github.com/shopspring/decimal v1.4.0
)
