//! A software ConnectX that executes mlx5 work queues.
