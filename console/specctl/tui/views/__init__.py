"""Pure functions: frozen view and size in, lines of roled text out. Nothing here knows textual."""
