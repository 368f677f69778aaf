"""Strategies of training in numbers, a file each: where parameters, gradients and optimizer states really stand."""
