// Empty: a target needs a source, and this one is for its precompiled headers.
