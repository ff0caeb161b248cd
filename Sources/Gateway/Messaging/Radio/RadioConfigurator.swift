// SPDX-License-Identifier: MIT

import Companion
import ControlShapes
import EventLoop
import JSON
import MeshCrypto
import RadioSession
import Sync

/// Reads and changes the radio's settings and identity.
public final class RadioConfigurator {
  /// The radio's answers, as far as its firmware knows the questions.
  public struct Facts: Equatable, Sendable {
    public var identity: RadioIdentity
    public var tuning: Tuning?
    public var autoAdd: AutoAdd?
    public var battery: Battery?
    /// The default region of floods.
    public var floodScope: FloodScope?
    /// The firmware has a default region: 1.15 and later.
    public var knowsFloodScope = false
    public var core: Stats.Core?
    public var radio: Stats.Radio?
    public var packets: Stats.Packets?
  }

  private let synchronizer: Synchronizer

  public init(_ synchronizer: Synchronizer) { self.synchronizer = synchronizer }

  private var connection: RadioConnection { synchronizer.connection }

  private static let settings: [Command] = [.getTuning, .getAutoAdd, .getDefaultFloodScope]
  private static let state: [Command] = [.getBattery, .getStats(0), .getStats(1), .getStats(2)]

  /// What the radio answers.
  public func read() async throws(Refusal) -> Facts { try await read(Self.settings + Self.state, isWhole: false) }

  /// All settings. Whoever keeps them, or changes one of those that share a command, must not take a lost answer for an old firmware.
  public func readSettings() async throws(Refusal) -> Facts { try await read(Self.settings, isWhole: true) }

  private func read(_ questions: [Command], isWhole: Bool, isChanged: Bool = false) async throws(Refusal) -> Facts {
    guard connection.state == .up else { throw .linkDown }
    let isAnswered = await synchronizer.refreshIdentity(isChanged: isChanged)
    guard connection.state == .up, let identity = connection.identity else { throw .linkDown }
    guard isAnswered else { throw Self.unanswered(isWhole) }
    var facts = Facts(identity: identity)
    for question in questions {
      switch await connection.ask(question, .interactive) {
      case .replied(let reply): Self.note(reply, &facts)
      case .failed(.linkLost): throw .linkDown
      case .failed(.timedOut) where isWhole, .failed(.notSent) where isWhole:
        throw Self.unanswered(isWhole)
      default: break  // an older firmware does not know the question
      }
    }
    return facts
  }

  private static func unanswered(_ isWhole: Bool) -> Refusal {
    let end = isWhole ? ", and nothing was done" : ""
    return .radio("the radio did not answer a question about its settings\(end): try again")
  }

  private static func note(_ reply: Reply, _ facts: inout Facts) {
    switch reply {
    case .tuning(let tuning): facts.tuning = tuning
    case .autoAdd(let autoAdd): facts.autoAdd = autoAdd
    case .battery(let battery): facts.battery = battery
    case .defaultFloodScope(let scope): (facts.floodScope, facts.knowsFloodScope) = (scope, true)
    case .stats(.core(let core)): facts.core = core
    case .stats(.radio(let radio)): facts.radio = radio
    case .stats(.packets(let packets)): facts.packets = packets
    default: break
    }
  }

  /// Applies one setting after the other, and stops at the first that the radio refuses. Returns the radio's settings afterwards.
  public func apply(_ settings: [RadioSetting]) async throws(Refusal) -> Facts {
    let facts = try await readSettings()
    for (count, setting) in settings.enumerated() {
      if case .floodScope(let scope) = setting, !facts.knowsFloodScope {
        // An older radio has no default region: there is nothing to remove.
        if scope == nil { continue }
        throw .radio("this firmware has no default region: flood-scope needs 1.15")
      }
      let outcome = await connection.ask(setting.command(facts), .interactive)
      guard case .replied(.ok) = outcome else {
        await synchronizer.refreshIdentity()
        throw .radio("\(setting.message) \(Self.words(outcome))\(count > 0 ? "; \(count) before it were set" : "")")
      }
    }
    do throws(Refusal) {
      return try await read(Self.settings + Self.state, isWhole: false, isChanged: true)
    } catch {
      throw .radio("it was set, and the radio did not tell its settings after that: run `meshpost radio info`")
    }
  }

  private static func words(_ outcome: RadioSession.Outcome) -> String {
    switch outcome {
    case .failed(.refused(let error)): "is refused by the radio: \(error?.description ?? "without a reason")"
    case .failed(.linkLost): "was not answered, and the link is down; it may have been set anyway"
    case .failed(.timedOut): "was not answered; it may have been set anyway"
    case .failed(.notSent): "was not sent: the radio does not answer"
    default: "got an unexpected answer"
    }
  }

  // MARK: The private key

  /// Returns 64 bytes. Only for an operator who has asked for the private key explicitly.
  public func exportPrivateKey() async throws(Refusal) -> [UInt8] {
    let outcome = await connection.ask(.exportPrivateKey, .interactive)
    switch outcome {
    case .replied(.privateKey(let bytes)): return bytes
    case .failed(.disabled): throw .radio("this firmware does not export its private key")
    case .failed(.linkLost): throw .linkDown
    default: throw .radio("the private key \(Self.words(outcome))")
    }
  }

  /// Gives the radio another identity. Returns when the radio has reported it.
  public func importPrivateKey(_ key: [UInt8]) async throws(Refusal) {
    // Before the command: one read can bring both the answer and the new identity.
    let met = connection.meeting
    let outcome = await connection.ask(.importPrivateKey(key), .interactive)
    guard case .replied(.ok) = outcome else { throw .radio("the private key \(Self.words(outcome))") }
    do throws(CancellationError) { try await met.value() } catch { throw .linkDown }
  }
}

extension RadioSetting {
  /// Settings that share a command keep their values unless they are changed.
  func command(_ facts: RadioConfigurator.Facts) -> Command {
    let info = facts.identity.info
    let device = facts.identity.device
    switch self {
    case .name(let name): return .setAdvertName(name)
    case .position(let latitude, let longitude):
      return .setAdvertPosition(latitude: latitude, longitude: longitude, altitude: nil)
    case .radio(let parameters, let wanted):
      return .setRadioParameters(parameters, clientRepeat: wanted.map { $0 ? 1 : 0 } ?? device?.clientRepeat)
    case .power(let dBm): return .setTxPower(dBm)
    case .tuning(let delay, let factor):
      let now = facts.tuning ?? Tuning(rxDelayBase: 0, airtimeFactor: 1000)
      return .setTuning(Tuning(rxDelayBase: delay ?? now.rxDelayBase, airtimeFactor: factor ?? now.airtimeFactor))
    case .autoAdd(let kinds, let overwrites, let hops): return Self.autoAdd(kinds, overwrites, hops, facts)
    case .other(let other): return Self.other(other, info)
    case .pathHashBytes(let bytes): return .setPathHashMode(bytes - 1)
    case .floodScope(let scope): return .setDefaultFloodScope(scope)
    case .pin(let pin): return .setDevicePIN(pin)
    }
  }

  private static func other(_ wanted: Other, _ info: SelfInfo) -> Command {
    let now = info.telemetryModes
    let modes = TelemetryModes(
      base: wanted.telemetry ?? now.base, location: wanted.telemetryLocation ?? now.location,
      environment: wanted.telemetryEnvironment ?? now.environment)
    return .setOtherParameters(
      OtherParameters(
        manualAddContacts: info.manualAddContacts, telemetryModes: modes,
        locationPolicy: wanted.locationPolicy ?? info.locationPolicy, multiAcks: wanted.multiAcks ?? info.multiAcks))
  }

  private static func autoAdd(
    _ kinds: Set<String>?, _ overwrites: Bool?, _ hops: UInt8?, _ facts: RadioConfigurator.Facts
  ) -> Command {
    let now = facts.autoAdd ?? AutoAdd(flags: 0, maxHops: nil)
    var flags = now.flags
    if let kinds {
      for kind in AutoAdd.kinds { flags = kinds.contains(kind.name) ? flags | kind.flag : flags & ~kind.flag }
    }
    if let overwrites { flags = overwrites ? flags | AutoAdd.overwriteFlag : flags & ~AutoAdd.overwriteFlag }
    return .setAutoAdd(AutoAdd(flags: flags, maxHops: hops ?? now.maxHops))
  }

  /// The setting in an error message, without secrets.
  var message: String {
    switch self {
    case .name: "the name"
    case .position: "the position"
    case .radio: "the radio's parameters"
    case .power: "the power"
    case .tuning: "the tuning"
    case .autoAdd: "auto-add"
    case .other: "telemetry, location policy and multi-acks"
    case .pathHashBytes: "the bytes of a path's hashes"
    case .floodScope: "the default region"
    case .pin: "the PIN"
    }
  }
}

extension RadioConfigurator.Facts {
  /// The shape is in docs/control-socket.md.
  public func write(to json: inout JSONWriter) {
    let row = Shape.Radio()
    let info = identity.info
    json.field(row.key, info.key.hex)
    if let details = identity.device?.details {
      json.field(row.model, details.model.string)
      json.field(row.version, details.version.string)
      json.field(row.build, details.build.string)
    }
    json.field(row.batteryMv, battery?.millivolts)
    json.field(row.storageUsedKib, battery?.usedKibibytes)
    json.field(row.storageTotalKib, battery?.totalKibibytes)
    json.object(row.settings) { writeSettings(to: &$0) }
    json.object(row.stats) { writeStats(to: &$0) }
  }

  /// Writes the settings under the names by which operators set them. `withKeys`: for a backup, also the key of a region that does not follow from
  /// its name.
  public func writeSettings(to json: inout JSONWriter, withKeys: Bool = false) {
    let info = identity.info
    json.field("name", info.name.string)
    json.field("position", "\(Double(info.latitude) / 1e6),\(Double(info.longitude) / 1e6)")
    json.field("frequency", Double(info.radio.frequency) / 1000)
    json.field("bandwidth", Double(info.radio.bandwidth) / 1000)
    json.field("sf", info.radio.spreadingFactor)
    json.field("cr", info.radio.codingRate)
    json.field("repeat", identity.device?.clientRepeat.map { $0 != 0 ? "on" : "off" })
    json.field("power", info.txPower)
    json.field("rx-delay", tuning.map { Double($0.rxDelayBase) / 1000 })
    json.field("airtime-factor", tuning.map { Double($0.airtimeFactor) / 1000 })
    if let autoAdd {
      let kinds = AutoAdd.kinds.filter { autoAdd.flags & $0.flag != 0 }.map(\.name)
      json.field("auto-add", kinds.isEmpty ? "none" : kinds.joined(separator: ","))
      json.field("auto-add-hops", autoAdd.maxHops)
      json.field("overwrite", autoAdd.flags & AutoAdd.overwriteFlag != 0 ? "on" : "off")
    }
    let modes = ["deny", "contacts", "all", "all"]
    json.field("telemetry", modes[Int(info.telemetryModes.base & 3)])
    json.field("telemetry-location", modes[Int(info.telemetryModes.location & 3)])
    json.field("telemetry-environment", modes[Int(info.telemetryModes.environment & 3)])
    json.field("location-policy", info.locationPolicy)
    json.field("multi-acks", info.multiAcks)
    json.field("path-hash-bytes", identity.device?.pathHashMode.map { $0 &+ 1 })
    guard knowsFloodScope else { return }
    let name = floodScope?.name.beforeNul.string ?? "none"
    json.field("flood-scope", name)
    if withKeys, let key = floodScope?.key, key != Region(name)?.key {
      json.field("flood-scope-key", Hex.string(key.bytes))
    }
  }

  private func writeStats(to json: inout JSONWriter) {
    json.field("max_power_dbm", identity.info.maxTxPower)
    json.field(
      "presets", json: JSONValue.array(RadioPreset.names(fitting: identity.info.radio).map { .string($0) }).bytes)
    json.field("manual_add", identity.info.manualAddContacts & 1 != 0)
    json.field("uptime_s", core?.uptime)
    json.field("error_flags", core?.errorFlags)
    json.field("queue", core?.queueLength)
    json.field("noise_floor_dbm", radio?.noiseFloor)
    json.field("last_rssi_dbm", radio?.lastRSSI)
    json.field("last_snr", radio?.lastSNR.decibels)
    json.field("airtime_s", radio?.secondsSent)
    json.field("receiving_s", radio?.secondsReceived)
    json.field("received", packets?.received)
    json.field("sent", packets?.sent)
  }
}
