"""The training loop of one population: act, step the environments, store, update, log, save."""
