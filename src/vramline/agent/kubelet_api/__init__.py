"""Messages of kubelet's gRPC sockets, made from the .proto files beside them by `make protos`."""
