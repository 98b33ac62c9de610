module tandem/reedsolomon

go 1.19
