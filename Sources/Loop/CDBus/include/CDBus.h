// libdbus-1's interface, as much of it as is used here. The library itself is loaded when it is first needed: only a
// radio over Bluetooth needs it, and it brings six more, over a mebibyte that a gateway with a serial radio would carry
// for nothing. Layouts and numbers are those of libdbus-1.so.3, whose interface has not changed since 2006.
#ifndef MESHPOST_CDBUS_H
#define MESHPOST_CDBUS_H

#include <stdint.h>

// Loads the library if it is not loaded yet; 0: it is not installed. Ask before anything else is called.
int meshpost_dbus_is_installed(void);

typedef uint32_t dbus_bool_t;
typedef struct DBusConnection DBusConnection;
typedef struct DBusMessage DBusMessage;
typedef struct DBusWatch DBusWatch;
typedef struct DBusTimeout DBusTimeout;

typedef enum { DBUS_DISPATCH_DATA_REMAINS, DBUS_DISPATCH_COMPLETE, DBUS_DISPATCH_NEED_MEMORY } DBusDispatchStatus;
typedef enum {
  DBUS_HANDLER_RESULT_HANDLED,
  DBUS_HANDLER_RESULT_NOT_YET_HANDLED,
  DBUS_HANDLER_RESULT_NEED_MEMORY
} DBusHandlerResult;

typedef struct {
  const char *name;
  const char *message;
  unsigned int flags;
  void *padding;
} DBusError;

typedef struct {
  void *hidden[2];
  uint32_t numbers[10];
  void *more[2];
} DBusMessageIter;

typedef void (*DBusFreeFunction)(void *memory);
typedef DBusHandlerResult (*DBusHandleMessageFunction)(DBusConnection *connection, DBusMessage *message, void *data);
typedef void (*DBusDispatchStatusFunction)(DBusConnection *connection, DBusDispatchStatus status, void *data);
typedef dbus_bool_t (*DBusAddWatchFunction)(DBusWatch *watch, void *data);
typedef void (*DBusRemoveWatchFunction)(DBusWatch *watch, void *data);
typedef void (*DBusWatchToggledFunction)(DBusWatch *watch, void *data);
typedef dbus_bool_t (*DBusAddTimeoutFunction)(DBusTimeout *timeout, void *data);
typedef void (*DBusRemoveTimeoutFunction)(DBusTimeout *timeout, void *data);
typedef void (*DBusTimeoutToggledFunction)(DBusTimeout *timeout, void *data);

dbus_bool_t dbus_bus_set_unique_name(DBusConnection *connection, const char *unique_name);
dbus_bool_t dbus_connection_add_filter(DBusConnection *connection, DBusHandleMessageFunction function, void *user_data, DBusFreeFunction free_data_function);
void dbus_connection_close(DBusConnection *connection);
DBusDispatchStatus dbus_connection_dispatch(DBusConnection *connection);
DBusConnection *dbus_connection_open_private(const char *address, DBusError *error);
DBusConnection *dbus_connection_ref(DBusConnection *connection);
dbus_bool_t dbus_connection_send(DBusConnection *connection, DBusMessage *message, uint32_t *client_serial);
void dbus_connection_set_dispatch_status_function(DBusConnection *connection, DBusDispatchStatusFunction function, void *data, DBusFreeFunction free_data_function);
void dbus_connection_set_exit_on_disconnect(DBusConnection *connection, dbus_bool_t exit_on_disconnect);
void dbus_connection_set_max_message_size(DBusConnection *connection, long size);
void dbus_connection_set_max_received_size(DBusConnection *connection, long size);
dbus_bool_t dbus_connection_set_timeout_functions(DBusConnection *connection, DBusAddTimeoutFunction add_function, DBusRemoveTimeoutFunction remove_function, DBusTimeoutToggledFunction toggled_function, void *data, DBusFreeFunction free_data_function);
dbus_bool_t dbus_connection_set_watch_functions(DBusConnection *connection, DBusAddWatchFunction add_function, DBusRemoveWatchFunction remove_function, DBusWatchToggledFunction toggled_function, void *data, DBusFreeFunction free_data_function);
void dbus_connection_unref(DBusConnection *connection);
void dbus_error_free(DBusError *error);
void dbus_error_init(DBusError *error);
void dbus_free(void *memory);
const char *dbus_message_get_destination(DBusMessage *message);
const char *dbus_message_get_error_name(DBusMessage *message);
const char *dbus_message_get_interface(DBusMessage *message);
const char *dbus_message_get_member(DBusMessage *message);
const char *dbus_message_get_path(DBusMessage *message);
uint32_t dbus_message_get_reply_serial(DBusMessage *message);
const char *dbus_message_get_sender(DBusMessage *message);
uint32_t dbus_message_get_serial(DBusMessage *message);
int dbus_message_get_type(DBusMessage *message);
dbus_bool_t dbus_message_is_signal(DBusMessage *message, const char *iface, const char *signal_name);
void dbus_message_iter_abandon_container(DBusMessageIter *iter, DBusMessageIter *sub);
dbus_bool_t dbus_message_iter_append_basic(DBusMessageIter *iter, int type, const void *value);
dbus_bool_t dbus_message_iter_close_container(DBusMessageIter *iter, DBusMessageIter *sub);
int dbus_message_iter_get_arg_type(DBusMessageIter *iter);
void dbus_message_iter_get_basic(DBusMessageIter *iter, void *value);
int dbus_message_iter_get_element_type(DBusMessageIter *iter);
void dbus_message_iter_get_fixed_array(DBusMessageIter *iter, void *value, int *n_elements);
char *dbus_message_iter_get_signature(DBusMessageIter *iter);
dbus_bool_t dbus_message_iter_init(DBusMessage *message, DBusMessageIter *iter);
void dbus_message_iter_init_append(DBusMessage *message, DBusMessageIter *iter);
dbus_bool_t dbus_message_iter_next(DBusMessageIter *iter);
dbus_bool_t dbus_message_iter_open_container(DBusMessageIter *iter, int type, const char *contained_signature, DBusMessageIter *sub);
void dbus_message_iter_recurse(DBusMessageIter *iter, DBusMessageIter *sub);
DBusMessage *dbus_message_new(int message_type);
dbus_bool_t dbus_message_set_destination(DBusMessage *message, const char *destination);
dbus_bool_t dbus_message_set_error_name(DBusMessage *message, const char *name);
dbus_bool_t dbus_message_set_interface(DBusMessage *message, const char *iface);
dbus_bool_t dbus_message_set_member(DBusMessage *message, const char *member);
void dbus_message_set_no_reply(DBusMessage *message, dbus_bool_t no_reply);
dbus_bool_t dbus_message_set_path(DBusMessage *message, const char *object_path);
dbus_bool_t dbus_message_set_reply_serial(DBusMessage *message, uint32_t reply_serial);
void dbus_message_unref(DBusMessage *message);
dbus_bool_t dbus_signature_validate(const char *signature, DBusError *error);
dbus_bool_t dbus_signature_validate_single(const char *signature, DBusError *error);
dbus_bool_t dbus_timeout_get_enabled(DBusTimeout *timeout);
int dbus_timeout_get_interval(DBusTimeout *timeout);
dbus_bool_t dbus_timeout_handle(DBusTimeout *timeout);
dbus_bool_t dbus_validate_bus_name(const char *name, DBusError *error);
dbus_bool_t dbus_validate_error_name(const char *name, DBusError *error);
dbus_bool_t dbus_validate_interface(const char *name, DBusError *error);
dbus_bool_t dbus_validate_member(const char *name, DBusError *error);
dbus_bool_t dbus_validate_path(const char *path, DBusError *error);
dbus_bool_t dbus_watch_get_enabled(DBusWatch *watch);
unsigned int dbus_watch_get_flags(DBusWatch *watch);
int dbus_watch_get_unix_fd(DBusWatch *watch);
dbus_bool_t dbus_watch_handle(DBusWatch *watch, unsigned int flags);

#endif
