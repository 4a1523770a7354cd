"""The program in a reservation pod: says which card kubelet gave to its pod, and then only waits."""
