// SPDX-License-Identifier: MIT

import CDBus
import EventLoop
import Glibc
import Timing

/// A message bus as a client sees it, on the event loop. It comes back by itself when the bus goes away: subscriptions and
/// exported objects stay, calls that wait fail.
///
/// Nothing blocks, no thread is made, nothing is polled. Callbacks come on the loop.
public final class Bus {
  public typealias Completion = (Result<[BusValue], BusError>) -> Void
  /// Answers a call to an exported object, once.
  public typealias Reply = (Result<[BusValue], BusError>) -> Void

  /// What a subscription is ended by.
  public final class Subscription {
    fileprivate let rule: MatchRule
    fileprivate let handler: (BusMessage) -> Void
    fileprivate init(_ rule: MatchRule, _ handler: @escaping (BusMessage) -> Void) {
      self.rule = rule
      self.handler = handler
    }
  }

  private struct Call {
    let completion: Completion
    let timer: LoopTimer
  }

  private struct ExportedInterface: Hashable {
    let path: String
    let interface: String
  }

  /// The system's bus, as libdbus looks for it.
  public static var systemAddress: String {
    getenv("DBUS_SYSTEM_BUS_ADDRESS").map { String(cString: $0) } ?? "unix:path=/run/dbus/system_bus_socket"
  }

  private static let maxCalls = 64
  private static let busName = "org.freedesktop.DBus"
  private static let busPath = "/org/freedesktop/DBus"
  private static let helloLimit: Duration = .seconds(10)

  private let address: String
  private let loop: EventLoop
  private var transport: BusTransport?
  private var backoff = Backoff(first: .seconds(1), limit: .seconds(30))
  private var random = SystemRandomNumberGenerator()
  private var retry: LoopTimer?
  private var isWanted = false
  private var calls: [UInt32: Call] = [:]
  private var subscriptions: [Subscription] = []
  private var names: [String: (String?) -> Void] = [:]
  private var exported: [ExportedInterface: (BusMessage, @escaping Reply) -> Void] = [:]

  /// Registered with the bus: calls can be made.
  public private(set) var isUp = false
  public var onUp: () -> Void = {}
  /// The bus is away: told once; it is tried again by itself.
  public var onDown: (BusError) -> Void = { _ in }

  public init(address: String = Bus.systemAddress, on loop: EventLoop) {
    self.address = address
    self.loop = loop
  }

  // MARK: Connection

  public func open() {
    guard !isWanted else { return }
    isWanted = true
    loop.later { [weak self] in self?.connect() }
  }

  /// Ends it: calls that wait fail, nothing follows.
  public func close() {
    isWanted = false
    retry?.cancel()
    isUp = false
    transport?.close()
    transport = nil
    failCalls(.disconnected("closed"))
  }

  private func connect() {
    guard isWanted, transport == nil else { return }
    do {
      let transport = try BusTransport(address: address, on: loop)
      self.transport = transport
      transport.onMessage = { [weak self] message in self?.received(message) ?? false }
      transport.onClosed = { [weak self] in self?.lost(.disconnected("it closed the connection")) }
      send(.call(Self.busName, Self.busPath, Self.busName, "Hello"), timeout: Self.helloLimit) { [weak self] result in
        self?.greeted(result)
      }
    } catch {
      lost(error)
    }
  }

  private func greeted(_ result: Result<[BusValue], BusError>) {
    guard case .success(let body) = result, let name = body.first?.string else {
      if case .failure(let error) = result { lost(error) } else { lost(.malformed("Hello without a name")) }
      return
    }
    transport?.setUniqueName(name)
    backoff.reset()
    isUp = true
    for rule in Set(subscriptions.map(\.rule)) { addMatch(rule) }
    for name in names.keys { askOwner(name) }
    onUp()
  }

  private func lost(_ error: BusError) {
    guard isWanted else { return }
    transport?.close()
    transport = nil
    isUp = false
    failCalls(error)
    for handler in names.values { handler(nil) }
    onDown(error)
    retry?.cancel()
    retry = loop.schedule(after: backoff.next(using: &random)) { [weak self] in self?.connect() }
  }

  private func failCalls(_ error: BusError) {
    let failed = calls
    calls = [:]
    for call in failed.values {
      call.timer.cancel()
      call.completion(.failure(error))
    }
  }

  // MARK: Calls

  /// Calls a method; `completion` hears exactly once, later.
  public func call(_ message: BusMessage, timeout: Duration = .seconds(25), _ completion: @escaping Completion) {
    guard isUp else { return loop.later { completion(.failure(.disconnected("not connected"))) } }
    send(message, timeout: timeout, completion)
  }

  private func send(_ message: BusMessage, timeout: Duration, _ completion: @escaping Completion) {
    do throws(BusError) {
      guard let transport else { throw BusError.disconnected("not connected") }
      guard calls.count < Self.maxCalls else { throw BusError.tooManyCalls }
      let encoded = try Marshalling.encode(message)
      defer { dbus_message_unref(encoded) }
      let serial = try transport.send(encoded)
      let timer = loop.schedule(after: timeout) { [weak self] in
        self?.calls.removeValue(forKey: serial)?.completion(.failure(.timedOut))
      }
      calls[serial] = Call(completion: completion, timer: timer)
    } catch {
      loop.later { completion(.failure(error)) }
    }
  }

  /// Sends what has no answer: signals, replies.
  private func post(_ message: BusMessage) {
    guard let transport else { return }
    do {
      let encoded = try Marshalling.encode(message)
      defer { dbus_message_unref(encoded) }
      _ = try transport.send(encoded)
    } catch {
      // The other side's call times out, which is what it would see of a bus that went away.
      return
    }
  }

  /// A property of an object.
  public func property(
    _ destination: String, _ path: String, _ interface: String, _ name: String,
    _ completion: @escaping (Result<BusValue, BusError>) -> Void
  ) {
    let properties = "org.freedesktop.DBus.Properties"
    call(.call(destination, path, properties, "Get", [.string(interface), .string(name)])) { result in
      completion(
        result.flatMap { body in
          body.first.map { .success($0.unwrapped) } ?? .failure(.malformed("\(name) without a value"))
        })
    }
  }

  // MARK: Signals

  /// Calls `handler` for each matching signal, as they come, also after the bus has gone and come back.
  public func subscribe(_ rule: MatchRule, _ handler: @escaping (BusMessage) -> Void) -> Subscription {
    let subscription = Subscription(rule, handler)
    let isNew = !subscriptions.contains { $0.rule == rule }
    subscriptions.append(subscription)
    if isNew, isUp { addMatch(rule) }
    return subscription
  }

  public func unsubscribe(_ subscription: Subscription) {
    subscriptions.removeAll { $0 === subscription }
    guard isUp, !subscriptions.contains(where: { $0.rule == subscription.rule }) else { return }
    call(.call(Self.busName, Self.busPath, Self.busName, "RemoveMatch", [.string(subscription.rule.text)])) { _ in }
  }

  private func addMatch(_ rule: MatchRule) {
    call(.call(Self.busName, Self.busPath, Self.busName, "AddMatch", [.string(rule.text)])) { [weak self] result in
      // A bus that refuses a rule would leave us deaf: start over.
      if case .failure(let error) = result, self?.isUp == true { self?.lost(error) }
    }
  }

  /// Tells who owns a well-known name: now, and at each change. `nil`: nobody.
  public func watchName(_ name: String, _ handler: @escaping (String?) -> Void) {
    names[name] = handler
    _ = subscribe(
      MatchRule(sender: Self.busName, interface: Self.busName, member: "NameOwnerChanged", argument: name)
    ) { message in
      guard message.sender == Self.busName, message.body.count == 3, let owner = message.body[2].string else { return }
      handler(owner.isEmpty ? nil : owner)
    }
    if isUp { askOwner(name) }
  }

  private func askOwner(_ name: String) {
    call(.call(Self.busName, Self.busPath, Self.busName, "GetNameOwner", [.string(name)])) { [weak self] result in
      switch result {
      case .success(let body): self?.names[name]?(body.first?.string)
      case .failure(.refused): self?.names[name]?(nil)
      case .failure: break  // the bus went away: told by `lost`
      }
    }
  }

  // MARK: Objects of ours

  /// Sends a signal to whoever listens.
  public func emit(_ path: String, _ interface: String, _ member: String, _ body: [BusValue] = []) {
    post(BusMessage(.signal, path: path, interface: interface, member: member, body: body))
  }

  /// Answers calls of one interface at one path. `handler` gets the call and must reply once; what it refuses should
  /// name an error.
  public func export(
    _ path: String, _ interface: String, _ handler: @escaping (BusMessage, @escaping Reply) -> Void
  ) {
    exported[ExportedInterface(path: path, interface: interface)] = handler
  }

  public func unexport(_ path: String, _ interface: String) {
    exported[ExportedInterface(path: path, interface: interface)] = nil
  }

  private func answer(_ message: BusMessage) -> Bool {
    guard let path = message.path, let interface = message.interface,
      let handler = exported[ExportedInterface(path: path, interface: interface)]
    else { return false }
    handler(message) { [weak self] result in
      switch result {
      case .success(let body):
        self?.post(BusMessage(.reply(to: message.serial), destination: message.sender, body: body))
      case .failure(.refused(let name, let words)):
        self?.post(
          BusMessage(.error(to: message.serial, name: name), destination: message.sender, body: [.string(words)]))
      case .failure(let error):
        let name = "org.freedesktop.DBus.Error.Failed"
        let body: [BusValue] = [.string(error.description)]
        self?.post(BusMessage(.error(to: message.serial, name: name), destination: message.sender, body: body))
      }
    }
    return true
  }

  // MARK: Incoming

  /// False: not ours; libdbus answers calls to objects that do not exist.
  private func received(_ raw: OpaquePointer) -> Bool {
    let message: BusMessage
    do {
      message = try Marshalling.decode(raw)
    } catch {
      let serial = dbus_message_get_reply_serial(raw)
      finish(serial, .failure(error))
      return true
    }
    switch message.kind {
    case .reply(let serial): finish(serial, .success(message.body))
    case .error(let serial, let name):
      finish(serial, .failure(.refused(name: name, words: message.body.first?.string ?? "")))
    case .signal:
      for subscription in subscriptions where subscription.rule.matches(message) { subscription.handler(message) }
    case .call: return answer(message)
    }
    return true
  }

  private func finish(_ serial: UInt32, _ result: Result<[BusValue], BusError>) {
    guard let call = calls.removeValue(forKey: serial) else { return }  // too late, or nobody asked
    call.timer.cancel()
    call.completion(result)
  }
}
