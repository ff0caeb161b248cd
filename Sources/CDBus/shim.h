// libdbus-1's interface, and what Swift cannot see of it.
#include <dbus/dbus.h>
