// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import MeshIdentity
import Timing

/// A companion radio without hardware: answers all commands of the protocol like firmware 1.17.1.
///
/// Its packets are real (signed adverts, encrypted texts), and pass through an `Ether` that several radios share. There are no repeaters or rooms
/// that answer: logins and requests to other nodes get SENT, and nothing follows, as if the node was out of range. One thread.
public final class VirtualRadio {
  public static let protocolVersion: UInt8 = 13
  static let largestSignature = 8192

  public let settings: VirtualRadioSettings
  let loop: EventLoop
  weak var ether: Ether?
  var stored: StoredState
  var volatile: VolatileState
  private var bootedAt: MonotonicTime
  /// When the clock was set last, and to which time.
  private var clockSetAt: MonotonicTime
  private var clockWhenSet: UInt32
  private var lastUniqueTime: UInt32 = 0
  private var flash: ContactFlash

  weak var port: RadioPort?
  /// Commands that it answers with an error.
  public var refuses: ((Command) -> RadioError?)?
  /// Gets each frame of a radio without a port.
  public var output: (([UInt8]) -> Void)?
  /// On TCP: whether a client is connected. Serial lines always count as connected.
  public var isClientConnected = true
  /// The battery's voltage in millivolts.
  public var batteryMillivolts: UInt16 = 4120

  /// Gets each message that the radio has heard.
  public var onMessage: ((QueuedMessage) -> Void)?

  public init(_ settings: VirtualRadioSettings, on loop: EventLoop) {
    self.settings = settings
    self.loop = loop
    stored = StoredState(settings)
    volatile = VolatileState(queueCapacity: settings.queueCapacity)
    flash = ContactFlash(stored, at: loop.now)
    (bootedAt, clockSetAt) = (loop.now + (.zero - settings.age), loop.now)
    clockWhenSet = 0
    let start = settings.clock ?? Self.clockWithoutChip
    stored.contacts = (0..<min(settings.contacts, settings.maxContacts)).map {
      StoredState.madeUpContact($0, seed: settings.seed, lastModified: start &- UInt32(settings.contacts - $0))
    }
    clockWhenSet = settings.clock ?? clockAfterBoot()
    flash.write(stored)
  }

  /// 15 May 2024: the clock of a radio without a clock chip at its start (firmware `VolatileRTCClock`).
  static let clockWithoutChip: UInt32 = 1_715_770_351

  public var key: PublicKey { stored.identity.publicKey }

  /// The radio's clock, seconds since 1970.
  public var clock: UInt32 {
    get { clockWhenSet &+ UInt32(truncatingIfNeeded: Int64((loop.now - clockSetAt).inSeconds)) }
    set { (clockWhenSet, clockSetAt) = (newValue, loop.now) }
  }

  var uptime: UInt32 { UInt32(truncatingIfNeeded: Int64((loop.now - bootedAt).inSeconds)) }

  /// The clock's time, but never the same second twice.
  func uniqueTime() -> UInt32 {
    lastUniqueTime = max(clock, lastUniqueTime &+ 1)
    return lastUniqueTime
  }

  private func clockAfterBoot() -> UInt32 {
    let newest = stored.contacts.compactMap(\.lastModified).max() ?? 0
    return newest > 0 ? newest &+ 1 : Self.clockWithoutChip
  }

  /// Switches the radio off and on: its RAM is lost, and so are changes of contacts that are not in the flash yet.
  public func reboot() {
    keepContacts()
    stored.contacts = flash.contacts
    flash.write(stored)
    restart()
  }

  /// Writes the contacts to the flash if their last change is long enough ago. Called before and after everything that may change them.
  func keepContacts() { flash.keep(stored, at: loop.now) }

  private func restart() {
    volatile.iteration?.cancel()
    ether?.forget(self)
    volatile = VolatileState(queueCapacity: settings.queueCapacity)
    clock = settings.clock ?? clockAfterBoot()
    bootedAt = loop.now
    port?.rebooted()
  }

  // MARK: Commands

  /// Executes a frame from the client. `wasCut`: it was longer than 176 bytes.
  public func received(_ frame: [UInt8]) {
    guard let code = frame.first else { return }
    keepContacts()
    defer { keepContacts() }
    let whole = filled(frame)
    volatile.commandBuffer = frame + volatile.commandBuffer.dropFirst(frame.count)
    guard CommandCode(rawValue: code) != nil else { return reply(.error(.unsupported)) }
    do {
      carryOut(try Command(decoding: whole), frame: whole)
    } catch {
      reply(.error(code == CommandCode.sendChannelData.rawValue ? .illegalArgument : .unsupported))
    }
  }

  /// The command with its missing bytes taken from the buffer, for commands whose length the firmware does not check.
  private func filled(_ frame: [UInt8]) -> [UInt8] {
    guard let code = frame.first, let length = Self.uncheckedLengths[code], frame.count < length else { return frame }
    let rest = volatile.commandBuffer.dropFirst(frame.count).prefix(length - frame.count)
    return frame + rest + [UInt8](repeating: 0, count: length - frame.count - rest.count)
  }

  private static let uncheckedLengths: [UInt8: Int] = [3: 7, 11: 11, 12: 2, 15: 33, 16: 33, 21: 9, 30: 33]

  /// Sends a frame to the client, if there is one.
  func put(_ frame: [UInt8]) {
    port?.send(frame)
    output?(frame)
  }

  func reply(_ reply: Reply) { put(reply.encode()) }

  /// Sends a push, if a client counts as connected.
  func push(_ push: Push) { if isClientConnected { put(push.encode()) } }

  private func carryOut(_ command: Command, frame: [UInt8]) {
    if let error = settings.firmware.knows(command) ? refuses?(command) : .unsupported {
      _ = refuse(error)
      return
    }
    if carryOutSetting(command) || carryOutQuery(command) || carryOutContact(command) || carryOutSending(command) {
      return
    }
    switch command {
    case .reboot:
      flash.write(stored)
      restart()
    case .factoryReset: factoryReset()
    case .signStart:
      volatile.signBuffer = []
      reply(.signStart(limit: UInt32(Self.largestSignature)))
    case .signData(let data): sign(data)
    case .signFinish:
      guard let message = volatile.signBuffer else { return reply(.error(.badState)) }
      volatile.signBuffer = nil
      reply(.signature(stored.identity.sign(message)))
    default: reply(.error(.unsupported))
    }
  }

  private func sign(_ data: [UInt8]) {
    guard let buffer = volatile.signBuffer else { return reply(.error(.badState)) }
    guard buffer.count + data.count <= Self.largestSignature else { return reply(.error(.tableFull)) }
    volatile.signBuffer = buffer + data
    reply(.ok)
  }

  private func factoryReset() {
    var fresh = settings
    fresh.seed &+= 1
    stored = StoredState(fresh)
    flash.write(stored)
    restart()
  }
}

/// The contacts in the flash: the firmware writes them five seconds after the last change (`LAZY_CONTACTS_WRITE_DELAY`).
struct ContactFlash {
  private static let delay: Duration = .seconds(5)

  private(set) var contacts: [Contact]
  private var changes: Int
  private var changedAt: MonotonicTime
  /// The contacts after the last change, until they are written.
  private var unwritten: [Contact]?

  init(_ stored: StoredState, at now: MonotonicTime) {
    (contacts, changes, changedAt) = (stored.contacts, stored.contactChanges, now)
  }

  /// Takes note of changes since the last call.
  mutating func keep(_ stored: StoredState, at now: MonotonicTime) {
    if let due = unwritten, now - changedAt >= Self.delay { (contacts, unwritten) = (due, nil) }
    guard stored.contactChanges != changes else { return }
    (unwritten, changes, changedAt) = (stored.contacts, stored.contactChanges, now)
  }

  /// Writes at once.
  mutating func write(_ stored: StoredState) {
    (contacts, unwritten, changes) = (stored.contacts, nil, stored.contactChanges)
  }
}
