"""Hard equations for `fdeint`, with solutions that share nothing with the library: see tests/campaign/hard_solves.py."""
