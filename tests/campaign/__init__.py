"""Random cases against definitions: a few in `make test`, many in `make campaign`."""
