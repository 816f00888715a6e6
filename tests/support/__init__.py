"""What tests share: harnesses, simulations, clients and invalid input, in one folder per area of the package."""
