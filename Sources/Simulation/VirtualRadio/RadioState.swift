// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import MeshCrypto
import MeshIdentity

/// The configuration of a virtual radio.
public struct VirtualRadioSettings: Sendable {
  public var name: String
  /// The source of the identity and of all random values.
  public var seed: UInt64
  public var maxContacts: Int
  public var channelSlots: Int
  public var queueCapacity: Int
  /// The clock at the start, seconds since 1970; `nil`: that of a board without a clock chip.
  public var clock: UInt32?
  /// The number of contacts in the table at the start.
  public var contacts: Int
  /// Firmware before 1.16 knows fewer flood scopes: 12 brought none at all for a message, 11 (1.15) the default scope, 8 (1.10)
  /// the scopes.
  public var firmware = VirtualFirmware.newest
  /// How many packets wait or are on the air at most; `nil`: any number. Firmware has room for 16.
  public var packetPool: Int?
  /// The uptime at the start.
  public var age: Duration = .zero

  public init(
    name: String, seed: UInt64, maxContacts: Int = 350, channelSlots: Int = 40, queueCapacity: Int = 16,
    clock: UInt32? = nil, contacts: Int = 0
  ) {
    self.name = name
    self.seed = seed
    self.maxContacts = maxContacts
    self.channelSlots = channelSlots
    self.queueCapacity = queueCapacity
    self.clock = clock
    self.contacts = contacts
  }
}

/// The state in flash, which survives a reboot.
struct StoredState {
  var identity: PrivateIdentity
  var name: Text
  var latitude: Int32 = 0
  var longitude: Int32 = 0
  var radio = RadioParameters(frequency: 869_618, bandwidth: 62_500, spreadingFactor: 8, codingRate: 8)
  var txPower: Int8 = 22
  var clientRepeat: UInt8 = 0
  var pathHashMode: UInt8 = 0
  var tuning = Tuning(rxDelayBase: 0, airtimeFactor: 1000)
  var other = OtherParameters(
    manualAddContacts: 0, telemetryModes: TelemetryModes(raw: 0), locationPolicy: 0, multiAcks: 0)
  var autoAdd = AutoAdd(flags: 0, maxHops: 0)
  var pin: UInt32 = 0
  var defaultScope: FloodScope?
  var contacts: [Contact] = [] {
    didSet { contactChanges &+= 1 }
  }
  /// Counts changes of the contacts.
  private(set) var contactChanges = 0
  /// The last received advert of each contact, which the radio shares and exports.
  var cards: [PublicKey: Packet] = [:]
  var channels: [Channel]

  init(_ settings: VirtualRadioSettings) {
    identity = PrivateIdentity(seed: Self.seed(settings.seed, "radio"))
    name = Text(bytes: Array(settings.name.utf8.prefix(31)))
    channels = (0..<settings.channelSlots).map { Channel(slot: UInt8($0), name: "", secret: .zero) }
    if !channels.isEmpty { channels[0] = Channel(slot: 0, name: "Public", secret: .publicChannel) }
  }

  static func seed(_ number: UInt64, _ purpose: String) -> [UInt8] {
    Digest.sha256(Array("\(purpose) \(number)".utf8))
  }

  static func madeUpContact(_ number: Int, seed: UInt64, lastModified: UInt32) -> Contact {
    let hash = Digest.sha256(Array("contact \(seed) \(number)".utf8))
    // The key is never used for signing. It must not begin with 0x00 or 0xFF.
    let key = PublicKey(bytes: [hash[0] % 254 + 1] + hash.dropFirst()) ?? PrivateIdentity(seed: hash).publicKey
    let type: NodeType = [.chat, .chat, .repeater, .room, .sensor][number % 5]
    return Contact(
      key: key, type: type, flags: number % 50 == 0 ? 1 : 0,
      outPath: number % 3 == 0 ? nil : Path(bytes: Array(hash[20..<20 + number % 4])),
      name: Text("Node \(number) \(["Ridge", "Møllebakken", "Šumava", "🌲 Tree"][number % 4])"),
      lastAdvert: lastModified &- 5, latitude: 47_000_000 + Int32(number) * 100,
      longitude: 8_000_000 + Int32(number) * 100, lastModified: lastModified)
  }
}

/// The state in RAM, which a reboot clears.
struct VolatileState {
  struct PendingAck {
    let code: AckCode
    let sentAt: UInt64
  }

  var clientVersion: UInt8 = 0
  var scope: FloodScopeOverride = .useDefault
  var signBuffer: [UInt8]?
  var queue: OfflineQueue
  /// The last 8 expected acks.
  var acks: [PendingAck] = []
  /// The paths of the last 16 nodes that were heard.
  var advertPaths: [(key: PublicKey, time: UInt32, path: Path)] = []
  /// Sends the contact table; `nil`: none is being sent.
  var iteration: LoopTask?
  var seen: [[UInt8]] = []
  var sent: UInt32 = 0
  var sentFlood: UInt32 = 0
  var received: UInt32 = 0
  var receivedFlood: UInt32 = 0
  var sentMilliseconds: Double = 0
  var receivedMilliseconds: Double = 0
  /// The bytes of the last commands: a command that is too short takes its missing bytes from here, as in the firmware.
  var commandBuffer: [UInt8] = []

  init(queueCapacity: Int) { queue = OfflineQueue(capacity: queueCapacity) }
}

/// Firmware that a virtual radio has the version of, as far as flood scopes and datagrams differ.
public struct VirtualFirmware: Hashable, Sendable {
  public var version: String
  public var protocolVersion: UInt8

  public static let newest = Self(version: "v1.17.1", protocolVersion: VirtualRadio.protocolVersion)
  public static let v1_9 = Self(version: "v1.9.1", protocolVersion: 7)
  public static let v1_13 = Self(version: "v1.13.0", protocolVersion: 9)
  public static let v1_15 = Self(version: "v1.15.0", protocolVersion: 11)

  /// Whether the radio takes the command.
  func knows(_ command: Command) -> Bool {
    switch command {
    case .setFloodScopeKey(.unscoped): protocolVersion >= 12
    case .setFloodScopeKey(.unknown): false
    case .setFloodScopeKey: protocolVersion >= 8
    case .setDefaultFloodScope, .getDefaultFloodScope, .sendChannelData: protocolVersion >= 11
    default: true
    }
  }
}
