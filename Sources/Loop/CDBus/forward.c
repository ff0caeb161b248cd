// Functions with libdbus-1's names that pass calls on to it, so that the program runs without it.
#define _GNU_SOURCE
#include "CDBus.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

// What the library calls of itself must be its own, not what stands here. Sanitizers refuse that.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#undef RTLD_DEEPBIND
#define RTLD_DEEPBIND 0
#endif
#endif

static void *library(void) {
  static void *handle;
  if (!handle) handle = dlopen("libdbus-1.so.3", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  return handle;
}

int meshpost_dbus_is_installed(void) { return library() != NULL; }

static void *find(const char *name) {
  void *found = library() ? dlsym(library(), name) : NULL;
  if (!found) {
    fprintf(stderr, "meshpostd: libdbus-1 has no %s, or is not installed\n", name);
    abort();
  }
  return found;
}

#define FORWARD(result, name, parameters, arguments) \
  result name parameters {                           \
    static __typeof__(&name) real;                   \
    if (!real) real = find(#name);                   \
    return real arguments;                           \
  }

FORWARD(dbus_bool_t, dbus_bus_set_unique_name, (DBusConnection *connection, const char *unique_name), (connection, unique_name))
FORWARD(dbus_bool_t, dbus_connection_add_filter, (DBusConnection *connection, DBusHandleMessageFunction function, void *user_data, DBusFreeFunction free_data_function), (connection, function, user_data, free_data_function))
FORWARD(void, dbus_connection_close, (DBusConnection *connection), (connection))
FORWARD(DBusDispatchStatus, dbus_connection_dispatch, (DBusConnection *connection), (connection))
FORWARD(DBusConnection *, dbus_connection_open_private, (const char *address, DBusError *error), (address, error))
FORWARD(DBusConnection *, dbus_connection_ref, (DBusConnection *connection), (connection))
FORWARD(dbus_bool_t, dbus_connection_send, (DBusConnection *connection, DBusMessage *message, uint32_t *client_serial), (connection, message, client_serial))
FORWARD(void, dbus_connection_set_dispatch_status_function, (DBusConnection *connection, DBusDispatchStatusFunction function, void *data, DBusFreeFunction free_data_function), (connection, function, data, free_data_function))
FORWARD(void, dbus_connection_set_exit_on_disconnect, (DBusConnection *connection, dbus_bool_t exit_on_disconnect), (connection, exit_on_disconnect))
FORWARD(void, dbus_connection_set_max_message_size, (DBusConnection *connection, long size), (connection, size))
FORWARD(void, dbus_connection_set_max_received_size, (DBusConnection *connection, long size), (connection, size))
FORWARD(dbus_bool_t, dbus_connection_set_timeout_functions, (DBusConnection *connection, DBusAddTimeoutFunction add_function, DBusRemoveTimeoutFunction remove_function, DBusTimeoutToggledFunction toggled_function, void *data, DBusFreeFunction free_data_function), (connection, add_function, remove_function, toggled_function, data, free_data_function))
FORWARD(dbus_bool_t, dbus_connection_set_watch_functions, (DBusConnection *connection, DBusAddWatchFunction add_function, DBusRemoveWatchFunction remove_function, DBusWatchToggledFunction toggled_function, void *data, DBusFreeFunction free_data_function), (connection, add_function, remove_function, toggled_function, data, free_data_function))
FORWARD(void, dbus_connection_unref, (DBusConnection *connection), (connection))
FORWARD(void, dbus_error_free, (DBusError *error), (error))
FORWARD(void, dbus_error_init, (DBusError *error), (error))
FORWARD(void, dbus_free, (void *memory), (memory))
FORWARD(const char *, dbus_message_get_destination, (DBusMessage *message), (message))
FORWARD(const char *, dbus_message_get_error_name, (DBusMessage *message), (message))
FORWARD(const char *, dbus_message_get_interface, (DBusMessage *message), (message))
FORWARD(const char *, dbus_message_get_member, (DBusMessage *message), (message))
FORWARD(const char *, dbus_message_get_path, (DBusMessage *message), (message))
FORWARD(uint32_t, dbus_message_get_reply_serial, (DBusMessage *message), (message))
FORWARD(const char *, dbus_message_get_sender, (DBusMessage *message), (message))
FORWARD(uint32_t, dbus_message_get_serial, (DBusMessage *message), (message))
FORWARD(int, dbus_message_get_type, (DBusMessage *message), (message))
FORWARD(dbus_bool_t, dbus_message_is_signal, (DBusMessage *message, const char *iface, const char *signal_name), (message, iface, signal_name))
FORWARD(void, dbus_message_iter_abandon_container, (DBusMessageIter *iter, DBusMessageIter *sub), (iter, sub))
FORWARD(dbus_bool_t, dbus_message_iter_append_basic, (DBusMessageIter *iter, int type, const void *value), (iter, type, value))
FORWARD(dbus_bool_t, dbus_message_iter_close_container, (DBusMessageIter *iter, DBusMessageIter *sub), (iter, sub))
FORWARD(int, dbus_message_iter_get_arg_type, (DBusMessageIter *iter), (iter))
FORWARD(void, dbus_message_iter_get_basic, (DBusMessageIter *iter, void *value), (iter, value))
FORWARD(int, dbus_message_iter_get_element_type, (DBusMessageIter *iter), (iter))
FORWARD(void, dbus_message_iter_get_fixed_array, (DBusMessageIter *iter, void *value, int *n_elements), (iter, value, n_elements))
FORWARD(char *, dbus_message_iter_get_signature, (DBusMessageIter *iter), (iter))
FORWARD(dbus_bool_t, dbus_message_iter_init, (DBusMessage *message, DBusMessageIter *iter), (message, iter))
FORWARD(void, dbus_message_iter_init_append, (DBusMessage *message, DBusMessageIter *iter), (message, iter))
FORWARD(dbus_bool_t, dbus_message_iter_next, (DBusMessageIter *iter), (iter))
FORWARD(dbus_bool_t, dbus_message_iter_open_container, (DBusMessageIter *iter, int type, const char *contained_signature, DBusMessageIter *sub), (iter, type, contained_signature, sub))
FORWARD(void, dbus_message_iter_recurse, (DBusMessageIter *iter, DBusMessageIter *sub), (iter, sub))
FORWARD(DBusMessage *, dbus_message_new, (int message_type), (message_type))
FORWARD(dbus_bool_t, dbus_message_set_destination, (DBusMessage *message, const char *destination), (message, destination))
FORWARD(dbus_bool_t, dbus_message_set_error_name, (DBusMessage *message, const char *name), (message, name))
FORWARD(dbus_bool_t, dbus_message_set_interface, (DBusMessage *message, const char *iface), (message, iface))
FORWARD(dbus_bool_t, dbus_message_set_member, (DBusMessage *message, const char *member), (message, member))
FORWARD(void, dbus_message_set_no_reply, (DBusMessage *message, dbus_bool_t no_reply), (message, no_reply))
FORWARD(dbus_bool_t, dbus_message_set_path, (DBusMessage *message, const char *object_path), (message, object_path))
FORWARD(dbus_bool_t, dbus_message_set_reply_serial, (DBusMessage *message, uint32_t reply_serial), (message, reply_serial))
FORWARD(void, dbus_message_unref, (DBusMessage *message), (message))
FORWARD(dbus_bool_t, dbus_signature_validate, (const char *signature, DBusError *error), (signature, error))
FORWARD(dbus_bool_t, dbus_signature_validate_single, (const char *signature, DBusError *error), (signature, error))
FORWARD(dbus_bool_t, dbus_timeout_get_enabled, (DBusTimeout *timeout), (timeout))
FORWARD(int, dbus_timeout_get_interval, (DBusTimeout *timeout), (timeout))
FORWARD(dbus_bool_t, dbus_timeout_handle, (DBusTimeout *timeout), (timeout))
FORWARD(dbus_bool_t, dbus_validate_bus_name, (const char *name, DBusError *error), (name, error))
FORWARD(dbus_bool_t, dbus_validate_error_name, (const char *name, DBusError *error), (name, error))
FORWARD(dbus_bool_t, dbus_validate_interface, (const char *name, DBusError *error), (name, error))
FORWARD(dbus_bool_t, dbus_validate_member, (const char *name, DBusError *error), (name, error))
FORWARD(dbus_bool_t, dbus_validate_path, (const char *path, DBusError *error), (path, error))
FORWARD(dbus_bool_t, dbus_watch_get_enabled, (DBusWatch *watch), (watch))
FORWARD(unsigned int, dbus_watch_get_flags, (DBusWatch *watch), (watch))
FORWARD(int, dbus_watch_get_unix_fd, (DBusWatch *watch), (watch))
FORWARD(dbus_bool_t, dbus_watch_handle, (DBusWatch *watch, unsigned int flags), (watch, flags))
