module github.com/cardmint/cardmint/tools/apidiff

go 1.26

require (
	golang.org/x/exp v0.0.0-20260209203927-2842357ff358
	golang.org/x/tools v0.42.0
)

require (
	golang.org/x/mod v0.33.0 // indirect
	golang.org/x/sync v0.19.0 // indirect
)
