// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import MeshCrypto
import Timing

/// The air that virtual radios share. All other radios receive a packet after its air time, unless it is lost.
public final class Ether {
  static let snr = SNR(quarters: 39)
  static let rssi: Int8 = -71

  private let loop: EventLoop
  private var random: SeededRandom
  private var radios: [VirtualRadio] = []
  /// The chance that a radio does not receive a packet, 0 to 1.
  public var loss: Double = 0
  /// Repeaters in range of all radios: the first byte of each key. They forward each flood once, and routed packets along their path.
  public var repeaters: [UInt8] = []
  /// The regions that the repeaters carry, `*` for floods without one. They drop floods of other regions.
  public var regions: [Region] = [.unscoped]
  /// Repeaters that carry other regions.
  public var regionsOf: [UInt8: [Region]] = [:]
  /// Observes each packet on the air.
  var onAir: ((Station, Packet) -> Void)?
  /// The radios are out of each other's range, and communicate only through repeaters.
  public var isFar = false
  /// Packets that overlap at a listener are lost there, and so is a packet that begins or ends while the listener transmits. A station that hears
  /// one waits before it transmits, as the firmware does.
  public var collides = false
  /// The factor for real air times and for the firmware's delays; 0: packets arrive at once.
  public var airtimeFactor: Double

  /// A radio or a repeater.
  enum Station: Hashable {
    case radio(ObjectIdentifier)
    case repeater(UInt8)

    var isRadio: Bool { if case .radio = self { true } else { false } }
  }

  private struct Waiting {
    let packet: Packet
    let parameters: RadioParameters
    let due: MonotonicTime
  }

  private final class Reception {
    let end: MonotonicTime
    var isSpoiled = false
    init(end: MonotonicTime) { self.end = end }
  }

  /// Each station has one transmitter: a packet waits for the previous one.
  private struct Transmitter {
    var waiting: [Waiting] = []
    var busyUntil = MonotonicTime(nanoseconds: 0)
    /// Since when the next packet waits for others to end.
    var heldSince: MonotonicTime?
    /// When it looks at its queue next.
    var wakes: MonotonicTime?
    /// Packets that are on their way to this station.
    var receptions: [Reception] = []
    /// The last 160 packets that this repeater has forwarded; firmware remembers as many.
    var repeated: [[UInt8]] = []
  }

  private var transmitters: [Station: Transmitter] = [:]
  /// Pairs that do not hear each other.
  private var parted: Set<Set<Station>> = []

  public init(on loop: EventLoop, seed: UInt64 = 1, airtimeFactor: Double = 0.1) {
    self.loop = loop
    self.airtimeFactor = airtimeFactor
    random = SeededRandom(seed: seed)
  }

  /// `isDeaf`: it transmits, and hears nothing.
  public func add(_ radio: VirtualRadio, isDeaf: Bool = false) {
    if !isDeaf { radios.append(radio) }
    radio.ether = self
  }

  // MARK: Who hears whom

  func part(_ one: Station, _ other: Station) { parted.insert([one, other]) }
  func join(_ one: Station, _ other: Station) { parted.remove([one, other]) }

  private func hears(_ one: Station, _ other: Station) -> Bool {
    one != other && !(isFar && one.isRadio && other.isRadio) && !parted.contains([one, other])
  }

  // MARK: Transmitting

  /// What waits and what is on the air has its place in the radio's packet pool.
  func hasRoom(_ radio: VirtualRadio) -> Bool {
    guard let pool = radio.settings.packetPool, let transmitter = transmitters[radio.station] else { return true }
    return transmitter.waiting.count + (transmitter.busyUntil > loop.now ? 1 : 0) < pool
  }

  /// `delay`: the firmware's own, before it sends an answer.
  func carry(_ packet: Packet, from sender: VirtualRadio, after delay: Duration = .zero) {
    guard hasRoom(sender) else { return }
    send(packet, by: sender.station, sender.stored.radio, after: delay.inSeconds * 1000)
  }

  /// The radio is switched off: packets that wait are lost.
  func forget(_ radio: VirtualRadio) { transmitters[radio.station] = nil }

  private func send(_ packet: Packet, by station: Station, _ parameters: RadioParameters, after milliseconds: Double) {
    let due = loop.now + span(milliseconds)
    transmitters[station, default: Transmitter()].waiting.append(
      Waiting(packet: packet, parameters: parameters, due: due))
    proceed(station)
  }

  private func span(_ milliseconds: Double) -> Duration {
    .nanoseconds(max(0, Int64(saturating: milliseconds * airtimeFactor * 1e6)))
  }

  /// Transmits what is due, if the station's transmitter is free; otherwise later.
  private func proceed(_ station: Station) {
    while var transmitter = transmitters[station],
      let next = transmitter.waiting.indices.min(by: { transmitter.waiting[$0].due < transmitter.waiting[$1].due })
    {
      let (now, packet) = (loop.now, transmitter.waiting[next])
      let start = max(packet.due, transmitter.busyUntil)
      guard start <= now else { return proceed(station, at: start) }
      if let pause = pauseForOthers(&transmitter) {
        transmitters[station] = transmitter
        return proceed(station, at: now + pause)
      }
      transmitter.waiting.remove(at: next)
      let time = Airtime.milliseconds(bytes: packet.packet.encode().count, packet.parameters)
      transmitter.busyUntil = now + span(time)
      transmitters[station] = transmitter
      spread(packet.packet, by: station, packet.parameters, until: transmitter.busyUntil)
    }
  }

  private func proceed(_ station: Station, at time: MonotonicTime) {
    if let wakes = transmitters[station]?.wakes, wakes <= time { return }
    transmitters[station]?.wakes = time
    loop.schedule(at: time) { [weak self] in
      guard let self, transmitters[station]?.wakes == time else { return }
      transmitters[station]?.wakes = nil
      proceed(station)
    }
  }

  /// How long to wait because another station is heard: 120, 240 or 360 ms, and after 4 s no longer (firmware `Dispatcher::checkSend`).
  private func pauseForOthers(_ transmitter: inout Transmitter) -> Duration? {
    guard collides, transmitter.receptions.contains(where: { $0.end > loop.now }) else {
      transmitter.heldSince = nil
      return nil
    }
    let since = transmitter.heldSince ?? loop.now
    guard loop.now - since <= span(4000) else {
      transmitter.heldSince = nil
      return nil
    }
    transmitter.heldSince = since
    return span(120 * Double(Int.random(in: 1...3, using: &random)))
  }

  // MARK: Receiving

  private func spread(_ packet: Packet, by sender: Station, _ parameters: RadioParameters, until end: MonotonicTime) {
    onAir?(sender, packet)
    // What it was about to receive is lost.
    if collides { transmitters[sender]?.receptions.forEach { $0.isSpoiled = true } }
    for radio in radios where hears(sender, radio.station) {
      let reception = receive(at: radio.station, until: end)
      guard Double.random(in: 0..<1, using: &random) >= loss else { continue }
      loop.schedule(at: end) { [weak radio] in if !reception.isSpoiled { radio?.heard(packet) } }
    }
    for repeater in repeaters where hears(sender, .repeater(repeater)) {
      let reception = receive(at: .repeater(repeater), until: end)
      if case .control(.discoverRequest(_, let filter, let tag, _))? = try? packet.content() {  // `try?`: no request
        loop.schedule(at: end) { [weak self] in
          if !reception.isSpoiled { self?.answer(filter, tag, by: repeater, parameters) }
        }
      }
      guard forwards(packet, repeater), Double.random(in: 0..<1, using: &random) >= loss else { continue }
      loop.schedule(at: end) { [weak self] in
        if !reception.isSpoiled { self?.forward(packet, by: repeater, parameters) }
      }
    }
  }

  private func receive(at listener: Station, until end: MonotonicTime) -> Reception {
    let reception = Reception(end: end)
    guard collides else { return reception }
    var transmitter = transmitters[listener] ?? Transmitter()
    transmitter.receptions.removeAll { $0.end <= loop.now }
    transmitter.receptions.forEach { $0.isSpoiled = true }
    reception.isSpoiled = !transmitter.receptions.isEmpty || transmitter.busyUntil > loop.now
    transmitter.receptions.append(reception)
    transmitters[listener] = transmitter
    return reception
  }

  // MARK: Repeaters

  /// A flood of a known region, or one without a region if allowed (firmware: `allowPacketForward`), and routed packets for which it is the next hop.
  private func forwards(_ packet: Packet, _ repeater: UInt8) -> Bool {
    guard packet.pathLength.bytesPerHop == 1, packet.pathLength.hops < 62 else { return false }
    guard packet.route.isFlood else { return packet.type != .trace && packet.path.first == repeater }
    let carried = self.carried(by: repeater)
    guard packet.route == .transportFlood else { return carried.contains(.unscoped) }
    return carried.contains { $0.key.map(packet.isInScope) ?? false }
  }

  func carried(by repeater: UInt8) -> [Region] { regionsOf[repeater] ?? regions }

  private func forward(_ packet: Packet, by repeater: UInt8, _ parameters: RadioParameters) {
    let (identity, station) = (packet.identity, Station.repeater(repeater))
    var transmitter = transmitters[station] ?? Transmitter()
    guard !transmitter.repeated.contains(identity) else { return }
    transmitter.repeated.append(identity)
    if transmitter.repeated.count > 160 { transmitter.repeated.removeFirst() }
    transmitters[station] = transmitter
    var next = packet
    if packet.route.isFlood { next.path.append(repeater) } else { next.path.removeFirst() }
    next.pathLength = PathLength(raw: UInt8(next.path.count))
    send(next, by: station, parameters, after: delay(of: packet, parameters))
  }

  /// A repeater says that it is in range. Its key is made up from its first byte.
  private func answer(_ filter: UInt8, _ tag: UInt32, by repeater: UInt8, _ parameters: RadioParameters) {
    guard filter & 1 << NodeType.repeater.rawValue != 0 else { return }
    let key = (0..<32).map { repeater &+ UInt8($0) }
    let response = ControlPayload.discoverResponse(type: .repeater, snr: Self.snr, tag: tag, key: key)
    let packet = Packet(route: .direct, type: .control, payload: response.encode())
    send(packet, by: .repeater(repeater), parameters, after: 4 * delay(of: packet, parameters))
  }

  /// A random time of up to 2.5 times the packet's own for floods, and 1.5 for routed packets (firmware `getRetransmitDelay`, with its defaults).
  private func delay(of packet: Packet, _ parameters: RadioParameters) -> Double {
    guard airtimeFactor > 0 else { return 0 }
    let time = Airtime.milliseconds(bytes: packet.encode().count, parameters)
    return Double.random(in: 0...(packet.route.isFlood ? 2.5 : 1.5), using: &random) * time
  }
}

extension VirtualRadio {
  var station: Ether.Station { .radio(ObjectIdentifier(self)) }
}
