module primacy

go 1.19
