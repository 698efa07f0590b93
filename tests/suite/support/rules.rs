//! Rules for tests, through the loader that the service uses.
