"""The connector `nexmark`: persons, auctions and bids of an auction house, made up from a seed."""
