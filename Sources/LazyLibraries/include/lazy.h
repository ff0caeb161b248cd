// What lazy.c loads when it is first needed.
#ifndef MESHPOST_LAZY_H
#define MESHPOST_LAZY_H

// Loads the library if it is not loaded yet; 0: it is not installed.
int meshpost_dbus_is_installed(void);
int meshpost_bluetooth_is_installed(void);

#endif
