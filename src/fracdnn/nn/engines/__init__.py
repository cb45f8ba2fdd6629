"""Fast paths of a `FractionalNetwork`; `Architecture` is the definition."""
