"""The body of an append: read fast where it is plain, in steps where it is large or odd."""
