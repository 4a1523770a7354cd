"""The only room that touches a GPU library."""
