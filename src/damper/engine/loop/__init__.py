"""The training loop: acting, stepping environments, storing, learning, saving; one population or several."""
