// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import Timing

/// A message bus as a client sees it, on the event loop. From `open` to `close` it connects again whenever the bus goes away: listeners and
/// exported objects stay, calls that wait fail.
///
/// Nothing blocks, no thread is made, nothing is polled. Messages are handled in the order in which the bus sends them: who waits for an
/// answer runs before what came after that answer is handled.
public final class Bus {
  /// Who has a name on the bus.
  public enum Owner: Equatable, Sendable {
    case name(String)
    case nobody
    /// The bus itself is away. It is tried again, and each failure is told.
    case unknown(BusError)
  }

  private struct ExportedInterface: Hashable {
    let path: String
    let interface: String
  }

  /// The system's bus, as libdbus looks for it.
  public static var systemAddress: String {
    getenv("DBUS_SYSTEM_BUS_ADDRESS").map { String(cString: $0) } ?? "unix:path=/run/dbus/system_bus_socket"
  }

  /// The bus's own.
  static let name = "org.freedesktop.DBus"
  /// For the bus's own answers.
  private static let helloLimit: Duration = .seconds(10)
  private static let busLimit: Duration = .seconds(25)
  private static let behind = BusError.disconnected("its signals were not read in time")

  private let address: String
  private let loop: EventLoop
  private var task: LoopTask?
  /// The bus has greeted us over it.
  private var connection: BusConnection?
  private var backoff = Backoff(first: .seconds(1), limit: .seconds(30))
  private var random = SystemRandomNumberGenerator()
  private var listeners: [BusListener] = []
  private var exported: [ExportedInterface: (BusMessage) throws(BusError) -> [BusValue]] = [:]

  /// Registered with the bus: calls can be made.
  public var isUp: Bool { connection?.isOpen ?? false }

  public init(address: String = Bus.systemAddress, on loop: EventLoop) {
    self.address = address
    self.loop = loop
  }

  // MARK: Connection

  /// Goes on until `close`.
  public func open() {
    guard task == nil else { return }
    task = loop.begin { [self] in
      do { try await run() } catch { return }  // closed
    }
  }

  /// For good: calls that wait fail, listeners get what has come and then nothing, exported objects end.
  public func close() {
    task?.cancel()
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

  /// One connection, to its end, which it throws.
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

  /// The bus greets us, and learns what is listened for.
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

  /// Of the bus itself.
  private static func question(_ member: String, _ arguments: String...) -> BusMessage {
    .call(name, "/org/freedesktop/DBus", name, member, arguments.map { .string($0) })
  }

  // MARK: Calls

  /// Calls a method, and returns its answer. Throws `BusError`; cancelled, `CancellationError`: the answer is dropped then, with the
  /// descriptors that it holds.
  @discardableResult
  public func call(_ message: BusMessage, timeout: Duration = .seconds(25)) async throws -> BusMessage {
    guard let connection, connection.isOpen else { throw BusError.disconnected("not connected") }
    return try await connection.call(message, within: timeout)
  }

  /// Calls a method whose answer does not matter.
  public func post(_ message: BusMessage) { connection?.post(message) }

  /// A property of an object.
  public func property(
    _ destination: String, _ path: String, _ interface: String, _ name: String
  ) async throws -> BusValue {
    let properties = "org.freedesktop.DBus.Properties"
    let answer = try await call(.call(destination, path, properties, "Get", [.string(interface), .string(name)]))
    guard let value = answer.body.first else { throw BusError.malformed("\(name) without a value") }
    return value.unwrapped
  }

  // MARK: Signals

  /// What is to be listened for is added to it.
  public func listen() -> BusListener {
    let listener = BusListener()
    listeners.append(listener)
    return listener
  }

  /// The listener gets each matching signal from now on. The bus knows the rule before it gets the caller's next call.
  public func add(_ rule: MatchRule, to listener: BusListener) {
    let isNew = !isKnown(rule)
    listener.add(rule)
    if isNew, let connection { add(rule, connection) }
  }

  public func remove(_ rule: MatchRule, from listener: BusListener) {
    listener.remove(rule)
    if !isKnown(rule) { post(Self.question("RemoveMatch", rule.text)) }
  }

  /// The listener gets who owns a well-known name: now, and at each change.
  public func watch(_ name: String, for listener: BusListener) {
    let known = Set(listeners.flatMap(\.allRules))
    listener.watch(name)
    guard let connection else { return }
    for rule in Set(listener.allRules).subtracting(known) { add(rule, connection) }
    askOwner(name, connection)
  }

  private func isKnown(_ rule: MatchRule) -> Bool { listeners.contains { $0.allRules.contains(rule) } }

  /// Sent at once: the caller's next call is to be made with the rule. A bus that refuses it would leave us deaf: the connection ends, and
  /// another one begins.
  private func add(_ rule: MatchRule, _ connection: BusConnection) {
    do throws(BusError) {
      let question = try connection.ask(Self.question("AddMatch", rule.text))
      loop.begin {
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
      loop.begin { [self] in
        do {
          let answer = try await connection.answer(to: question, within: Self.busLimit)
          tell(answer.body.first?.string.map { .name($0) } ?? .nobody, of: name)
        } catch BusError.refused {
          tell(.nobody, of: name)
        } catch {
          // The connection has ended: `run` tells of that. Else another one may know.
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

  /// Sends a signal to whoever listens.
  public func emit(_ path: String, _ interface: String, _ member: String, _ body: [BusValue] = []) {
    post(BusMessage(.signal, path: path, interface: interface, member: member, body: body))
  }

  /// Answers calls of one interface at one path with what `handler` returns; what it refuses should name an error.
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

  /// False: not ours; libdbus answers calls to objects that do not exist.
  private func received(_ message: BusMessage) -> Bool {
    guard message.kind == .signal else { return answer(message) }
    for listener in listeners where !listener.take(signal: message) { connection?.close(Self.behind) }
    return true
  }
}
