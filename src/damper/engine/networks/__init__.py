"""The networks of a population: flat parameters, stacked actors and critics."""
