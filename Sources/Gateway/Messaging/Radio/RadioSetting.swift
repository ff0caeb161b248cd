// SPDX-License-Identifier: MIT

import Companion
import JSON
import MeshCrypto
import UntrustedText

/// A requested change of the radio's settings, checked before anything is sent.
public enum RadioSetting: Equatable, Sendable {
  case name(Text)
  /// Degrees × 10⁶.
  case position(latitude: Int32, longitude: Int32)
  /// `clientRepeat`: `nil` leaves it as it is.
  case radio(RadioParameters, clientRepeat: Bool?)
  case power(Int8)
  case tuning(rxDelay: UInt32?, airtimeFactor: UInt32?)
  /// Kinds of nodes that the radio adds automatically; `nil` leaves the flags as they are.
  case autoAdd(kinds: Set<String>?, overwrites: Bool?, maxHops: UInt8?)
  case other(Other)
  case pathHashBytes(UInt8)
  /// The default region of floods; `nil`: none.
  case floodScope(FloodScope?)
  case pin(UInt32)

  /// Settings that share one command; `nil` leaves a value unchanged.
  public struct Other: Equatable, Sendable {
    /// 0 deny, 1 contacts, 2 all.
    public var telemetry: UInt8?
    public var telemetryLocation: UInt8?
    public var telemetryEnvironment: UInt8?
    public var locationPolicy: UInt8?
    public var multiAcks: UInt8?
  }

  /// All settings, with their allowed values.
  public static let known: [(name: String, allowed: String)] = [
    ("name", "1 to 31 bytes, not only blanks, no control characters, no colon before a space, no ⇄ at the start"),
    ("position", "LATITUDE,LONGITUDE in degrees, such as 47.3769,8.5417; 0,0: none"),
    ("preset", "a region's radio parameters: see `meshpost radio presets`"), ("frequency", "MHz, 150 to 2500"),
    ("bandwidth", "kHz, 7 to 500"), ("sf", "spreading factor, 5 to 12"), ("cr", "coding rate, 5 to 8"),
    ("repeat", "on or off: repeat packets of other nodes, where the frequency allows it"),
    ("power", "dBm, -9 to the board's maximum"),
    ("rx-delay", "0 to 20"), ("airtime-factor", "0 to 9: silence after each packet, in multiples of its air time"),
    ("auto-add", "all, none, or some of chat,repeater,room,sensor"), ("auto-add-hops", "0 to 64; 0: no limit"),
    ("overwrite", "on or off: replace the oldest contact when the table is full"),
    ("telemetry", "deny, contacts or all: who may read voltage and temperature"),
    ("telemetry-location", "deny, contacts or all"), ("telemetry-environment", "deny, contacts or all"),
    ("location-policy", "0: adverts contain no position, 1: they do"), ("multi-acks", "0 or 1"),
    ("path-hash-bytes", "1 to 3"),
    ("flood-scope", "the default region of floods, such as ottawa, or none; needs firmware 1.15"),
    ("flood-scope-key", "32 hex digits, with flood-scope: the key of a region that begins with $"),
    ("pin", "six digits, or 0; takes effect at the radio's next start"),
  ]

  /// Reads an object with these names; values are strings or numbers.
  public static func read(_ body: JSONValue, present: SelfInfo) throws(Refusal) -> [RadioSetting] {
    let fields = body.fields ?? []
    guard !fields.isEmpty else { throw .invalid("no setting given; \(list)") }
    var reader = Reader(present)
    let scope = try floodScope(fields)
    for (name, value) in fields {
      guard let rule = known.first(where: { $0.name == name }) else {
        throw .invalid("\"\(name)\" cannot be set; \(list)")
      }
      guard !Self.scopeNames.contains(name) else { continue }
      guard try reader.take(name, Self.words(value)) else {
        throw .invalid("\(name): \"\(Self.words(value))\" is not allowed: \(rule.allowed)")
      }
    }
    return reader.settings + (scope.map { [.floodScope($0)] } ?? [])
  }

  private static let scopeNames = ["flood-scope", "flood-scope-key"]

  /// Reads both names together; `nil`: neither is there.
  private static func floodScope(_ fields: [(String, JSONValue)]) throws(Refusal) -> FloodScope?? {
    func given(_ name: String) -> String? { fields.last { $0.0 == name }.map { words($0.1) } }
    let key = try given("flood-scope-key").map { hex throws(Refusal) in try SharedLink.secret(hex) }
    guard let name = given("flood-scope") else {
      guard key == nil else { throw .invalid("flood-scope-key requires flood-scope") }
      return nil
    }
    guard let key else {
      guard name != "none", name != Region.unscopedMark else { return .some(nil) }
      guard name != "default" else {
        throw .invalid("flood-scope: this sets the radio's default region; a region of the name default is #default")
      }
      guard case .named(let text)? = Region(name), let own = Region.named(text).key else {
        throw .invalid(
          "flood-scope: \"\(name)\" is not a public region: 1 to 30 bytes of letters, digits, - and _, or none (or *); one that begins with $ needs flood-scope-key"
        )
      }
      return FloodScope(name: Text(text), key: own)
    }
    guard name != "none", Visible.isLine(name, bytes: 1...30) else {
      throw .invalid("flood-scope: a name must have 1 to 30 bytes, not only blanks, and no control characters")
    }
    if let known = Region(name)?.key, known != key {
      throw .invalid(
        "flood-scope: the key of the public region \(name) "
          + "follows from its name; the name of a region with a key of its own begins with $")
    }
    return FloodScope(name: Text(name), key: key)
  }

  private static var list: String { "known: \(known.map(\.name).joined(separator: ", "))" }

  private static func words(_ value: JSONValue) -> String { value.string ?? value.text }
}

/// Collects settings; the parameters of the radio share one command.
private struct Reader {
  var radio: RadioParameters
  private let maxPower: Int8
  private var single: [RadioSetting] = []
  private var hasRadio = false
  private var tuning: (UInt32?, UInt32?) = (nil, nil)
  private var autoAdd: (Set<String>?, Bool?, UInt8?) = (nil, nil, nil)
  private var other = RadioSetting.Other()
  private var clientRepeat: Bool?

  init(_ present: SelfInfo) {
    radio = present.radio
    maxPower = present.maxTxPower
  }

  var settings: [RadioSetting] {
    var all = single
    if hasRadio || clientRepeat != nil { all.append(.radio(radio, clientRepeat: clientRepeat)) }
    if tuning != (nil, nil) { all.append(.tuning(rxDelay: tuning.0, airtimeFactor: tuning.1)) }
    if autoAdd.0 != nil || autoAdd.1 != nil || autoAdd.2 != nil {
      all.append(.autoAdd(kinds: autoAdd.0, overwrites: autoAdd.1, maxHops: autoAdd.2))
    }
    if other != RadioSetting.Other() { all.append(.other(other)) }
    return all
  }

  /// False: the value is not allowed.
  mutating func take(_ name: String, _ text: String) throws(Refusal) -> Bool {
    switch name {
    case "preset": return try preset(text)
    case "frequency": return number(text, 150...2500, 1000) { $0.radio.frequency = $1 }
    case "bandwidth": return number(text, 7...500, 1000) { $0.radio.bandwidth = $1 }
    case "sf": return number(text, 5...12, 1) { $0.radio.spreadingFactor = UInt8(clamping: $1) }
    case "cr": return number(text, 5...8, 1) { $0.radio.codingRate = UInt8(clamping: $1) }
    case "name":
      if let fault = GivenName.radioFault(Array(text.utf8)) { throw .invalid("name: \(fault)") }
      return add(.name(Text(text)))
    case "position": return position(text)
    case "power": return Int8(text).map { $0 >= -9 && $0 <= maxPower && add(.power($0)) } ?? false
    case "pin":
      guard let pin = UInt32(text), pin == 0 || (100_000...999_999).contains(pin) else { return false }
      return add(.pin(pin))
    default: return takeFlags(name, text)
    }
  }

  private mutating func takeFlags(_ name: String, _ text: String) -> Bool {
    func small(_ range: ClosedRange<Double>) -> UInt8? { Self.scaled(text, range, 1).map { UInt8(clamping: $0) } }
    switch name {
    case "repeat": return Self.keep(Self.flag(text), in: &clientRepeat)
    case "rx-delay": return Self.keep(Self.scaled(text, 0...20, 1000), in: &tuning.0)
    case "airtime-factor": return Self.keep(Self.scaled(text, 0...9, 1000), in: &tuning.1)
    case "auto-add": return Self.keep(Self.kinds(text), in: &autoAdd.0)
    case "overwrite": return Self.keep(Self.flag(text), in: &autoAdd.1)
    case "auto-add-hops": return Self.keep(small(0...64), in: &autoAdd.2)
    case "telemetry": return Self.keep(Self.mode(text), in: &other.telemetry)
    case "telemetry-location": return Self.keep(Self.mode(text), in: &other.telemetryLocation)
    case "telemetry-environment": return Self.keep(Self.mode(text), in: &other.telemetryEnvironment)
    case "location-policy": return Self.keep(small(0...1), in: &other.locationPolicy)
    case "multi-acks": return Self.keep(small(0...1), in: &other.multiAcks)
    case "path-hash-bytes": return small(1...3).map { add(.pathHashBytes($0)) } ?? false
    default: return false
    }
  }

  private static func keep<Value>(_ value: Value?, in place: inout Value?) -> Bool {
    place = value
    return value != nil
  }

  private mutating func add(_ setting: RadioSetting) -> Bool {
    single.append(setting)
    return true
  }

  private mutating func preset(_ text: String) throws(Refusal) -> Bool {
    let typed = text.lowercased()
    let exact = RadioPreset.all.filter { $0.name.lowercased() == typed }
    let fitting = exact.isEmpty ? RadioPreset.all.filter { $0.name.lowercased().hasPrefix(typed) } : exact
    guard let preset = fitting.first else { return false }
    guard fitting.count == 1 else { throw .ambiguous(text, candidates: fitting.map(\.name)) }
    (radio, hasRadio) = (preset.parameters, true)
    return preset.pathHashBytes.map { add(.pathHashBytes($0)) } ?? true
  }

  private mutating func number(
    _ text: String, _ range: ClosedRange<Double>, _ scale: Double, _ set: (inout Reader, UInt32) -> Void
  ) -> Bool {
    guard let value = Self.scaled(text, range, scale) else { return false }
    set(&self, value)
    hasRadio = true
    return true
  }

  private static func scaled(_ text: String, _ range: ClosedRange<Double>, _ scale: Double) -> UInt32? {
    guard let value = Double(text), range.contains(value) else { return nil }
    let whole = (value * scale).rounded()
    return abs(whole - value * scale) < 0.001 ? UInt32(whole) : nil
  }

  private mutating func position(_ text: String) -> Bool {
    let parts = text.split(separator: ",").map { part in Double(part.filter { $0 != " " }) }
    guard parts.count == 2, let latitude = parts[0], let longitude = parts[1], (-90...90).contains(latitude),
      (-180...180).contains(longitude)
    else { return false }
    return add(
      .position(
        latitude: Int32((latitude * 1e6).rounded()), longitude: Int32((longitude * 1e6).rounded())))
  }

  private static func flag(_ text: String) -> Bool? { ["on": true, "true": true, "off": false, "false": false][text] }
  private static func mode(_ text: String) -> UInt8? { ["deny": 0, "contacts": 1, "all": 2][text] }

  private static func kinds(_ text: String) -> Set<String>? {
    switch text {
    case "all": return Set(AutoAdd.kinds.map(\.name))
    case "none": return []
    default:
      let words = Set(text.split(separator: ",").map(String.init))
      return words.isSubset(of: AutoAdd.kinds.map(\.name)) && !words.isEmpty ? words : nil
    }
  }
}

extension AutoAdd {
  /// Kinds of nodes and their flags (docs/protocol/companion.md § 5).
  static let kinds: [(name: String, flag: UInt8)] = [("chat", 2), ("repeater", 4), ("room", 8), ("sensor", 16)]
  static let overwriteFlag: UInt8 = 1
}
