// SPDX-License-Identifier: MIT

import CDBus
import EventLoop

/// One libdbus connection on the event loop, which provides its watches and time-outs. Nothing blocks.
///
/// Ends with `close`, which its owner must call.
final class BusTransport {
  private let loop: EventLoop
  private var connection: OpaquePointer?
  private var watches: [Int32: [OpaquePointer]] = [:]
  private var timeouts: [OpaquePointer: LoopTask] = [:]
  /// Resumed when messages may be waiting, or the connection has ended.
  private let arrived = Waiter()
  /// The receiver of messages; returns false for unknown ones.
  private var take: ((OpaquePointer) -> Bool)?
  /// The last message answered one of our calls.
  private var wasAnswered = false
  private var isGone = false

  /// Maximum bytes of messages in memory, and of one message: GetManagedObjects with many devices takes
  /// some 100 KiB.
  private static let maxBytes = 4 << 20

  /// Messages per turn, so that other tasks run in between.
  private static let messagesPerTurn = 64

  init(address: String, on loop: EventLoop) throws(BusError) {
    self.loop = loop
    guard meshpost_dbus_is_installed() != 0 else {
      throw .disconnected("libdbus-1 is not installed (Debian: libdbus-1-3)")
    }
    var error = DBusError()
    dbus_error_init(&error)
    defer { dbus_error_free(&error) }
    guard let connection = dbus_connection_open_private(address, &error) else {
      throw .disconnected(error.message.map { String(cString: $0) } ?? address)
    }
    self.connection = connection
    dbus_connection_set_exit_on_disconnect(connection, 0)
    dbus_connection_set_max_received_size(connection, Self.maxBytes)
    dbus_connection_set_max_message_size(connection, Self.maxBytes)
    attach(connection)
  }

  private func attach(_ connection: OpaquePointer) {
    let this = Unmanaged.passUnretained(self).toOpaque()
    dbus_connection_set_watch_functions(
      connection,
      { watch, data in
        BusTransport.of(data).add(watch)
        return 1
      }, { watch, data in BusTransport.of(data).remove(watch) },
      { watch, data in BusTransport.of(data).toggle(watch) }, this, nil)
    dbus_connection_set_timeout_functions(
      connection,
      { timeout, data in
        BusTransport.of(data).arm(timeout)
        return 1
      }, { timeout, data in BusTransport.of(data).disarm(timeout) },
      { timeout, data in BusTransport.of(data).arm(timeout) }, this, nil)
    dbus_connection_set_dispatch_status_function(
      connection,
      { _, status, data in if status == DBUS_DISPATCH_DATA_REMAINS { BusTransport.of(data).arrived.resume() } }, this,
      nil)
    dbus_connection_add_filter(
      connection,
      { _, message, data in
        guard let message, BusTransport.of(data).received(message) else { return DBUS_HANDLER_RESULT_NOT_YET_HANDLED }
        return DBUS_HANDLER_RESULT_HANDLED
      }, this, nil)
  }

  /// The pointer is the one that `attach` registered, and is alive: `close` removes the callbacks.
  private static func of(_ data: UnsafeMutableRawPointer?) -> BusTransport {
    guard let data else { preconditionFailure("libdbus lost our pointer") }
    return Unmanaged<BusTransport>.fromOpaque(data).takeUnretainedValue()
  }

  func close() {
    guard let connection else { return }
    self.connection = nil
    dbus_connection_set_dispatch_status_function(connection, nil, nil, nil)
    dbus_connection_set_watch_functions(connection, nil, nil, nil, nil, nil)
    dbus_connection_set_timeout_functions(connection, nil, nil, nil, nil, nil)
    for descriptor in watches.keys { loop.unwatch(descriptor) }
    for task in timeouts.values { task.cancel() }
    watches = [:]
    timeouts = [:]
    dbus_connection_close(connection)
    dbus_connection_unref(connection)
    arrived.resume()
  }

  /// Returns the serial; the caller still owns the message.
  func send(_ message: OpaquePointer) throws(BusError) -> UInt32 {
    guard let connection else { throw .disconnected("closed") }
    var serial: UInt32 = 0
    guard dbus_connection_send(connection, message, &serial) != 0 else { throw .invalid("no memory") }
    return serial
  }

  func setUniqueName(_ name: String) {
    guard let connection, dbus_validate_bus_name(name, nil) != 0 else { return }
    dbus_bus_set_unique_name(connection, name)
  }

  // MARK: Watches

  private func add(_ watch: OpaquePointer?) {
    guard let watch else { return }
    let descriptor = dbus_watch_get_unix_fd(watch)
    let isNew = watches[descriptor] == nil
    watches[descriptor, default: []].append(watch)
    if isNew {
      loop.watch(descriptor, for: interest(descriptor)) { [self] in ready(descriptor, $0) }
    } else {
      loop.changeInterest(descriptor, to: interest(descriptor))
    }
  }

  private func remove(_ watch: OpaquePointer?) {
    guard let watch else { return }
    let descriptor = dbus_watch_get_unix_fd(watch)
    watches[descriptor]?.removeAll { $0 == watch }
    if watches[descriptor]?.isEmpty ?? true {
      watches[descriptor] = nil
      loop.unwatch(descriptor)
    } else {
      loop.changeInterest(descriptor, to: interest(descriptor))
    }
  }

  private func toggle(_ watch: OpaquePointer?) {
    guard let watch else { return }
    let descriptor = dbus_watch_get_unix_fd(watch)
    loop.changeInterest(descriptor, to: interest(descriptor))
  }

  private static let readable: UInt32 = 1
  private static let writable: UInt32 = 2
  private static let error: UInt32 = 4
  private static let hangUp: UInt32 = 8

  private func interest(_ descriptor: Int32) -> EventLoop.Readiness {
    var interest: EventLoop.Readiness = []
    for watch in watches[descriptor] ?? [] where dbus_watch_get_enabled(watch) != 0 {
      let flags = dbus_watch_get_flags(watch)
      if flags & Self.readable != 0 { interest.insert(.readable) }
      if flags & Self.writable != 0 { interest.insert(.writable) }
    }
    return interest
  }

  private func ready(_ descriptor: Int32, _ readiness: EventLoop.Readiness) {
    var condition: UInt32 = 0
    if readiness.contains(.readable) { condition |= Self.readable }
    if readiness.contains(.writable) { condition |= Self.writable }
    if !readiness.intersection(.closed).isEmpty { condition |= Self.error | Self.hangUp }
    // A handler may remove the other watches.
    for watch in watches[descriptor] ?? [] where watches[descriptor]?.contains(watch) ?? false {
      guard dbus_watch_get_enabled(watch) != 0 else { continue }
      let own = condition & (dbus_watch_get_flags(watch) | Self.error | Self.hangUp)
      if own != 0 { dbus_watch_handle(watch, own) }
    }
    arrived.resume()
  }

  // MARK: Time-outs

  private func arm(_ timeout: OpaquePointer?) {
    guard let timeout else { return }
    disarm(timeout)
    guard dbus_timeout_get_enabled(timeout) != 0 else { return }
    let interval = Duration.milliseconds(Int64(dbus_timeout_get_interval(timeout)))
    // Repeats until it is removed.
    timeouts[timeout] = loop.begin { [loop] in
      do {
        while true {
          try await loop.sleep(for: interval)
          dbus_timeout_handle(timeout)
        }
      } catch {
        return  // removed
      }
    }
  }

  private func disarm(_ timeout: OpaquePointer?) {
    guard let timeout else { return }
    timeouts.removeValue(forKey: timeout)?.cancel()
  }

  // MARK: Dispatch

  private enum Rest {
    case none, some
    /// The task that waits for the answer runs before later messages are handled.
    case afterAnswer
  }

  /// Passes on each message, in the bus's order, until the connection ends or is closed. `take` returns false for unknown messages.
  func run(_ take: @escaping (OpaquePointer) -> Bool) async throws(CancellationError) {
    self.take = take
    defer { self.take = nil }
    while !isGone, let connection {
      switch dispatch(connection) {
      case .none: try await arrived.wait()
      case .some: try await loop.nextTurn()
      case .afterAnswer: try await loop.later()
      }
    }
  }

  private func dispatch(_ connection: OpaquePointer) -> Rest {
    // The receiver may close the connection.
    dbus_connection_ref(connection)
    defer { dbus_connection_unref(connection) }
    wasAnswered = false
    for _ in 0..<Self.messagesPerTurn where !isGone && self.connection != nil {
      guard dbus_connection_dispatch(connection) == DBUS_DISPATCH_DATA_REMAINS else { return .none }
      if wasAnswered { return .afterAnswer }
    }
    return .some
  }

  private func received(_ message: OpaquePointer) -> Bool {
    if dbus_message_is_signal(message, "org.freedesktop.DBus.Local", "Disconnected") != 0 {
      isGone = true
      return true
    }
    if dbus_message_get_reply_serial(message) != 0 { wasAnswered = true }
    return take?(message) ?? false
  }
}
