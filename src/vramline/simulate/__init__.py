"""The embedded cluster: manifests in, placements out; stories; a virtual clock. Needs no cluster and no GPU."""
