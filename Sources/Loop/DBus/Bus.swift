// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import Timing

/// A client's connection to a message bus, on the event loop. From `open` to `close` it reconnects whenever the bus goes away: listeners and
/// exported objects persist, pending calls fail.
///
/// Nothing blocks, no thread is created, nothing is polled. Messages are handled in the bus's order: a task that waits for an
/// answer runs before messages behind that answer are handled.
public final class Bus {
  /// The owner of a name on the bus.
  public enum Owner: Equatable, Sendable {
    case name(String)
    case nobody
    /// The bus is unavailable. Reconnecting continues, and each failure is reported.
    case unknown(BusError)
  }

  private struct ExportedInterface: Hashable {
    let path: String
    let interface: String
  }

  /// The system bus, at the address that libdbus uses.
  public static var systemAddress: String {
    getenv("DBUS_SYSTEM_BUS_ADDRESS").map { String(cString: $0) } ?? "unix:path=/run/dbus/system_bus_socket"
  }

  static let name = "org.freedesktop.DBus"
  /// Time-out of the bus's own answers.
  private static let helloLimit: Duration = .seconds(10)
  private static let busLimit: Duration = .seconds(25)
  private static let behind = BusError.disconnected("its signals were not read in time")

  private let address: String
  private let loop: EventLoop
  private var task: LoopTask?
  /// Questions to the bus itself.
  private let tasks: LoopTasks
  /// The current connection, once the bus has answered Hello.
  private var connection: BusConnection?
  private var backoff = Backoff(first: .seconds(1), limit: .seconds(30))
  private var random = SystemRandomNumberGenerator()
  private var listeners: [BusListener] = []
  private var exported: [ExportedInterface: (BusMessage) throws(BusError) -> [BusValue]] = [:]

  /// The bus has registered this connection: calls are possible.
  public var isUp: Bool { connection?.isOpen ?? false }

  public init(address: String = Bus.systemAddress, on loop: EventLoop) {
    self.address = address
    self.loop = loop
    tasks = LoopTasks(on: loop)
  }

  // MARK: Connection

  /// Connects, and reconnects until `close`.
  public func open() {
    guard task == nil else { return }
    task = loop.begin { [self] in
      do { try await run() } catch { return }  // closed
    }
  }

  /// Closes the connection for good: calls fail, listeners end after the arrived events, exported objects end.
  public func close() {
    task?.cancel()
    tasks.cancel()
    connection?.close(.disconnected("closed"))
    for listener in listeners { listener.finish() }
    (listeners, exported) = ([], [:])
  }

  private func run() async throws {
    while true {
      do {
        try await beConnected()
      } catch let error as BusError {
        for name in Set(listeners.flatMap(\.names)) { tell(.unknown(error), of: name) }
      }
      try await loop.sleep(for: backoff.next(using: &random))
    }
  }

  /// Runs one connection, and throws why it ended.
  private func beConnected() async throws {
    let connection = try BusConnection(address: address, on: loop)
    defer {
      connection.close(.disconnected("left"))
      self.connection = nil
    }
    try await loop.race(
      { try await connection.run { self.received($0) } },
      { try await self.enter(connection) })
  }

  /// Sends Hello, and registers the match rules.
  private func enter(_ connection: BusConnection) async throws {
    let hello = try await connection.call(Self.question("Hello"), within: Self.helloLimit)
    guard let name = hello.body.first?.string else { throw BusError.malformed("Hello without a name") }
    connection.setUniqueName(name)
    backoff.reset()
    self.connection = connection
    for rule in Set(listeners.flatMap(\.allRules)) { add(rule, connection) }
    for name in Set(listeners.flatMap(\.names)) { askOwner(name, connection) }
    throw try await connection.ended()
  }

  /// A method call to the bus itself.
  private static func question(_ member: String, _ arguments: String...) -> BusMessage {
    .call(name, "/org/freedesktop/DBus", name, member, arguments.map { .string($0) })
  }

  // MARK: Calls

  /// Calls a method, and returns its answer. Throws `BusError`, or `CancellationError` when cancelled: then the answer is dropped with
  /// its descriptors.
  @discardableResult
  public func call(_ message: BusMessage, timeout: Duration = .seconds(25)) async throws -> BusMessage {
    guard let connection, connection.isOpen else { throw BusError.disconnected("not connected") }
    return try await connection.call(message, within: timeout)
  }

  /// Calls a method, and ignores the answer.
  public func post(_ message: BusMessage) { connection?.post(message) }

  /// Reads a property of an object.
  public func property(
    _ destination: String, _ path: String, _ interface: String, _ name: String
  ) async throws -> BusValue {
    let properties = "org.freedesktop.DBus.Properties"
    let answer = try await call(.call(destination, path, properties, "Get", [.string(interface), .string(name)]))
    guard let value = answer.body.first else { throw BusError.malformed("\(name) without a value") }
    return value.unwrapped
  }

  // MARK: Signals

  /// Returns a new listener. The caller adds match rules to it.
  public func listen() -> BusListener {
    let listener = BusListener()
    listeners.append(listener)
    return listener
  }

  /// The listener receives each matching signal from now on. The bus knows the rule before the caller's next call.
  public func add(_ rule: MatchRule, to listener: BusListener) {
    let isNew = !isKnown(rule)
    listener.add(rule)
    if isNew, let connection { add(rule, connection) }
  }

  public func remove(_ rule: MatchRule, from listener: BusListener) {
    listener.remove(rule)
    if !isKnown(rule) { post(Self.question("RemoveMatch", rule.text)) }
  }

  /// The listener receives the owner of a well-known name: now, and at each change.
  public func watch(_ name: String, for listener: BusListener) {
    let known = Set(listeners.flatMap(\.allRules))
    listener.watch(name)
    guard let connection else { return }
    for rule in Set(listener.allRules).subtracting(known) { add(rule, connection) }
    askOwner(name, connection)
  }

  private func isKnown(_ rule: MatchRule) -> Bool { listeners.contains { $0.allRules.contains(rule) } }

  /// Sent at once, so that the rule holds for the caller's next call. If the bus refuses it, signals would be missed: the connection ends,
  /// and a new one begins.
  private func add(_ rule: MatchRule, _ connection: BusConnection) {
    do throws(BusError) {
      let question = try connection.ask(Self.question("AddMatch", rule.text))
      tasks.begin {
        do {
          _ = try await connection.answer(to: question, within: Self.busLimit)
        } catch {
          connection.close(error as? BusError ?? .timedOut)
        }
      }
    } catch {
      connection.close(error)
    }
  }

  private func askOwner(_ name: String, _ connection: BusConnection) {
    do throws(BusError) {
      let question = try connection.ask(Self.question("GetNameOwner", name))
      tasks.begin { [self] in
        do {
          let answer = try await connection.answer(to: question, within: Self.busLimit)
          tell(answer.body.first?.string.map { .name($0) } ?? .nobody, of: name)
        } catch BusError.refused {
          tell(.nobody, of: name)
        } catch {
          // Without an answer the owner is unknown: the connection ends, and the next one asks again.
          connection.close(error as? BusError ?? .timedOut)
        }
      }
    } catch {
      connection.close(error)
    }
  }

  private func tell(_ owner: Owner, of name: String) {
    for listener in listeners where listener.names.contains(name) && !listener.take(.owner(owner, of: name)) {
      connection?.close(Self.behind)
    }
  }

  // MARK: Objects of ours

  /// Sends a signal to all subscribers.
  public func emit(_ path: String, _ interface: String, _ member: String, _ body: [BusValue] = []) {
    post(BusMessage(.signal, path: path, interface: interface, member: member, body: body))
  }

  /// Answers calls of one interface at one path with the result of `handler`, whose errors should have a D-Bus name.
  public func export(
    _ path: String, _ interface: String, _ handler: @escaping (BusMessage) throws(BusError) -> [BusValue]
  ) {
    exported[ExportedInterface(path: path, interface: interface)] = handler
  }

  private func answer(_ message: BusMessage) -> Bool {
    guard let path = message.path, let interface = message.interface,
      let handler = exported[ExportedInterface(path: path, interface: interface)]
    else { return false }
    do throws(BusError) {
      post(BusMessage(.reply(to: message.serial), destination: message.sender, body: try handler(message)))
    } catch {
      var (name, words) = ("org.freedesktop.DBus.Error.Failed", error.description)
      if case .refused(let ours, let why) = error { (name, words) = (ours, why) }
      post(BusMessage(.error(to: message.serial, name: name), destination: message.sender, body: [.string(words)]))
    }
    return true
  }

  /// False: the object is not exported here; libdbus answers calls to unknown objects.
  private func received(_ message: BusMessage) -> Bool {
    guard message.kind == .signal else { return answer(message) }
    for listener in listeners where !listener.take(signal: message) { connection?.close(Self.behind) }
    return true
  }
}
