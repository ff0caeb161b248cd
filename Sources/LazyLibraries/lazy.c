// libdbus-1 and libbluetooth, loaded when they are first needed.
//
// Only a radio over Bluetooth needs them, and they bring six more libraries: a gateway with a serial radio would carry
// over a mebibyte of them for nothing. These functions have the libraries' names and pass calls on; the linker finds them
// here and leaves the libraries out. The parameters are the libraries' own, with every pointer as `void *`.
#include "lazy.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef void *P;
typedef unsigned int U;

static void *library(const char *name, void **handle) {
  // DEEPBIND: what the library calls of itself must be its own, not these.
  if (!*handle) *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  return *handle;
}

static void *dbus_handle, *bluetooth_handle;

int meshpost_dbus_is_installed(void) { return library("libdbus-1.so.3", &dbus_handle) != NULL; }
int meshpost_bluetooth_is_installed(void) { return library("libbluetooth.so.3", &bluetooth_handle) != NULL; }

// Whoever calls has asked whether the library is there.
static void *find(const char *name, int is_there, void *handle) {
  void *found = is_there ? dlsym(handle, name) : NULL;
  if (!found) {
    fprintf(stderr, "meshpostd: %s is missing: its library is not installed, or too old\n", name);
    abort();
  }
  return found;
}

#define FORWARD_TO(library, result, name, parameters, arguments)                                     \
  result name parameters {                                                                           \
    static result(*real) parameters;                                                                 \
    if (!real) real = find(#name, meshpost_##library##_is_installed(), library##_handle);            \
    return real arguments;                                                                           \
  }

#define FORWARD(result, name, parameters, arguments) FORWARD_TO(dbus, result, name, parameters, arguments)
FORWARD(U, dbus_bus_set_unique_name, (P a, P b), (a, b))
FORWARD(U, dbus_connection_add_filter, (P a, P b, P c, P d), (a, b, c, d))
FORWARD(void, dbus_connection_close, (P a), (a))
FORWARD(int, dbus_connection_dispatch, (P a), (a))
FORWARD(P, dbus_connection_open_private, (P a, P b), (a, b))
FORWARD(P, dbus_connection_ref, (P a), (a))
FORWARD(U, dbus_connection_send, (P a, P b, P c), (a, b, c))
FORWARD(void, dbus_connection_set_dispatch_status_function, (P a, P b, P c, P d), (a, b, c, d))
FORWARD(void, dbus_connection_set_exit_on_disconnect, (P a, U b), (a, b))
FORWARD(void, dbus_connection_set_max_message_size, (P a, long b), (a, b))
FORWARD(void, dbus_connection_set_max_received_size, (P a, long b), (a, b))
FORWARD(U, dbus_connection_set_timeout_functions, (P a, P b, P c, P d, P e, P f), (a, b, c, d, e, f))
FORWARD(U, dbus_connection_set_watch_functions, (P a, P b, P c, P d, P e, P f), (a, b, c, d, e, f))
FORWARD(void, dbus_connection_unref, (P a), (a))
FORWARD(void, dbus_error_free, (P a), (a))
FORWARD(void, dbus_error_init, (P a), (a))
FORWARD(void, dbus_free, (P a), (a))
FORWARD(P, dbus_message_get_destination, (P a), (a))
FORWARD(P, dbus_message_get_error_name, (P a), (a))
FORWARD(P, dbus_message_get_interface, (P a), (a))
FORWARD(P, dbus_message_get_member, (P a), (a))
FORWARD(P, dbus_message_get_path, (P a), (a))
FORWARD(U, dbus_message_get_reply_serial, (P a), (a))
FORWARD(P, dbus_message_get_sender, (P a), (a))
FORWARD(U, dbus_message_get_serial, (P a), (a))
FORWARD(int, dbus_message_get_type, (P a), (a))
FORWARD(U, dbus_message_is_signal, (P a, P b, P c), (a, b, c))
FORWARD(void, dbus_message_iter_abandon_container, (P a, P b), (a, b))
FORWARD(U, dbus_message_iter_append_basic, (P a, int b, P c), (a, b, c))
FORWARD(U, dbus_message_iter_close_container, (P a, P b), (a, b))
FORWARD(int, dbus_message_iter_get_arg_type, (P a), (a))
FORWARD(void, dbus_message_iter_get_basic, (P a, P b), (a, b))
FORWARD(int, dbus_message_iter_get_element_type, (P a), (a))
FORWARD(void, dbus_message_iter_get_fixed_array, (P a, P b, P c), (a, b, c))
FORWARD(P, dbus_message_iter_get_signature, (P a), (a))
FORWARD(U, dbus_message_iter_init, (P a, P b), (a, b))
FORWARD(void, dbus_message_iter_init_append, (P a, P b), (a, b))
FORWARD(U, dbus_message_iter_next, (P a), (a))
FORWARD(U, dbus_message_iter_open_container, (P a, int b, P c, P d), (a, b, c, d))
FORWARD(void, dbus_message_iter_recurse, (P a, P b), (a, b))
FORWARD(P, dbus_message_new, (int a), (a))
FORWARD(U, dbus_message_set_destination, (P a, P b), (a, b))
FORWARD(U, dbus_message_set_error_name, (P a, P b), (a, b))
FORWARD(U, dbus_message_set_interface, (P a, P b), (a, b))
FORWARD(U, dbus_message_set_member, (P a, P b), (a, b))
FORWARD(void, dbus_message_set_no_reply, (P a, U b), (a, b))
FORWARD(U, dbus_message_set_path, (P a, P b), (a, b))
FORWARD(U, dbus_message_set_reply_serial, (P a, U b), (a, b))
FORWARD(void, dbus_message_unref, (P a), (a))
FORWARD(U, dbus_signature_validate, (P a, P b), (a, b))
FORWARD(U, dbus_signature_validate_single, (P a, P b), (a, b))
FORWARD(U, dbus_timeout_get_enabled, (P a), (a))
FORWARD(int, dbus_timeout_get_interval, (P a), (a))
FORWARD(U, dbus_timeout_handle, (P a), (a))
FORWARD(U, dbus_validate_bus_name, (P a, P b), (a, b))
FORWARD(U, dbus_validate_error_name, (P a, P b), (a, b))
FORWARD(U, dbus_validate_interface, (P a, P b), (a, b))
FORWARD(U, dbus_validate_member, (P a, P b), (a, b))
FORWARD(U, dbus_validate_path, (P a, P b), (a, b))
FORWARD(U, dbus_watch_get_enabled, (P a), (a))
FORWARD(U, dbus_watch_get_flags, (P a), (a))
FORWARD(int, dbus_watch_get_unix_fd, (P a), (a))
FORWARD(U, dbus_watch_handle, (P a, U b), (a, b))

#undef FORWARD
#define FORWARD(result, name, parameters, arguments) FORWARD_TO(bluetooth, result, name, parameters, arguments)
FORWARD(int, hci_devinfo, (int a, P b), (a, b))
FORWARD(int, hci_open_dev, (int a), (a))
FORWARD(int, hci_close_dev, (int a), (a))
FORWARD(int, hci_read_local_version, (int a, P b, int c), (a, b, c))
FORWARD(P, bt_compidtostr, (int a), (a))
