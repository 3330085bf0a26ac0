// Holds the precompiled headers of the unit tests (cmake/room.cmake); has no code of its own.
