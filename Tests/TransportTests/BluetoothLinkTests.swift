// SPDX-License-Identifier: MIT

import BluetoothSession
import DBus
import Glibc
import TestSupport
import Testing

@testable import EventLoop
@testable import Transport

/// The part of BlueZ that a link needs, with one adapter and one radio in range, on the test's own bus.
private final class FakeBlueZ {
  private static let adapter = "/org/bluez/hci0"
  private static let device = "/org/bluez/hci0/dev_C0_FF_EE_00_00_01"
  private static let (rx, tx) = ("\(device)/service0010/char0011", "\(device)/service0010/char0013")

  private let bus: Bus
  private let loop: EventLoop
  private let hasSockets: Bool
  private var isPaired: Bool
  private var isConnected = false
  private var (notifications, writes): (Int32, Int32) = (-1, -1)
  private(set) var calls: [String] = []
  /// Frames that arrived by WriteValue.
  private var written: [[UInt8]] = []
  /// The answer of the link's agent to the request for the PIN.
  private(set) var passkey: BusValue?
  /// The method at whose call it leaves the bus without an answer.
  var diesOn: String?

  /// `hasSockets`: it provides sockets for frames, like newer versions.
  init(_ address: String, on loop: EventLoop, hasSockets: Bool = true, isPaired: Bool = true) {
    self.loop = loop
    self.hasSockets = hasSockets
    self.isPaired = isPaired
    bus = Bus(address: address, on: loop)
    for (path, interface) in [
      ("/", BlueZ.objectManager), ("/org/bluez", BlueZ.agentManager), (Self.adapter, BlueZ.adapter),
      (Self.adapter, BlueZ.properties), (Self.device, BlueZ.device), (Self.device, BlueZ.properties),
      (Self.rx, BlueZ.characteristic), (Self.tx, BlueZ.characteristic), (Self.tx, BlueZ.properties),
    ] {
      bus.export(path, interface) { [unowned self] call throws(BusError) in try answer(call) }
    }
    bus.open()
    _ = loop.begin { [self] in
      // `try?`: the test's wait for the link fails then.
      while !bus.isUp { try? await loop.sleep(for: .milliseconds(1)) }
      _ = try? await bus.call(
        .call(
          "org.freedesktop.DBus", "/", "org.freedesktop.DBus", "RequestName", [.string(BlueZ.service), .uint32(0)]))
    }
  }

  func end() {
    bus.close()
    closeSockets()
  }

  private func closeSockets() {
    for socket in [notifications, writes] where socket >= 0 { close(socket) }
    (notifications, writes) = (-1, -1)
  }

  private func answer(_ call: BusMessage) throws(BusError) -> [BusValue] {
    let member = call.member ?? ""
    calls.append(member)
    if member == diesOn {
      diesOn = nil
      end()
    }
    switch member {
    case "GetManagedObjects": return [objects]
    case "RegisterAgent": askForPasskey(call.sender ?? "")
    // The radio is heard only after the scan has begun.
    case "StartDiscovery": loop.later { [self] in changed([("RSSI", .int16(-60))]) }
    case "Pair":
      isPaired = true
      changed([("Paired", .bool(true))])
      connected(true)
    case "Connect": connected(true)
    case "Disconnect": connected(false)
    case "RemoveDevice": isPaired = false
    case "AcquireNotify", "AcquireWrite":
      guard hasSockets else { throw .refused(name: "org.bluez.Error.NotSupported", message: "") }
      let (ours, theirs) = pair()
      // Sockets of a link that has ended.
      close(member == "AcquireNotify" ? notifications : writes)
      if member == "AcquireNotify" { notifications = ours } else { writes = ours }
      return [.descriptor(theirs), .uint16(185)]
    case "WriteValue": if case .bytes(let frame)? = call.body.first { written.append(frame) }
    case "Get": return [.variant(.uint16(185))]
    default: break
    }
    return []
  }

  private func pair() -> (Int32, BusDescriptor) {
    var ends: [Int32] = [-1, -1]
    socketpair(AF_UNIX, Int32(SOCK_SEQPACKET.rawValue), 0, &ends)
    Descriptor.setNonBlocking(ends[0])
    return (ends[0], BusDescriptor(owning: ends[1]))
  }

  private func askForPasskey(_ agent: String) {
    _ = loop.begin { [self] in
      let call = BusMessage.call(
        agent, "/org/meshpost/agent", BlueZ.agent, "RequestPasskey", [.objectPath(Self.device)])
      passkey = try? await bus.call(call).body.first  // `try?`: nil fails the test
    }
  }

  // MARK: The radio

  private func connected(_ isSo: Bool) {
    isConnected = isSo
    changed([("Connected", .bool(isSo)), ("ServicesResolved", .bool(isSo))])
    if !isSo { closeSockets() }
  }

  /// The radio goes out of range.
  func lose() { connected(false) }

  func send(_ frame: [UInt8]) {
    if notifications >= 0 {
      #expect(Glibc.send(notifications, frame, frame.count, 0) == frame.count)
    } else {
      changed([("Value", .bytes(frame))], of: BlueZ.characteristic, at: Self.tx)
    }
  }

  /// All frames from the link so far.
  func frames() -> [[UInt8]] {
    var buffer = [UInt8](repeating: 0, count: 512)
    while writes >= 0 {
      let count = recv(writes, &buffer, buffer.count, 0)
      guard count > 0 else { break }
      written.append(Array(buffer.prefix(count)))
    }
    return written
  }

  // MARK: Objects

  private func changed(
    _ values: [(String, BusValue)], of interface: String = BlueZ.device, at path: String = device
  ) {
    bus.emit(
      path, BlueZ.properties, "PropertiesChanged",
      [.string(interface), .options(values), .array(element: "s", [])])
  }

  private var objects: BusValue {
    let flags = hasSockets ? ["write-without-response", "write"] : ["write"]
    return .array(
      element: "{oa{sa{sv}}}",
      [
        object(
          Self.adapter, BlueZ.adapter, [("Address", .string("00:00:00:00:00:01")), ("Powered", .bool(true))]),
        object(
          Self.device, BlueZ.device,
          [
            ("Address", .string("C0:FF:EE:00:00:01")), ("Adapter", .objectPath(Self.adapter)),
            ("Name", .string("MeshCore-Hill")), ("Paired", .bool(isPaired)), ("Connected", .bool(isConnected)),
            ("ServicesResolved", .bool(isConnected)),
          ]),
        object(
          Self.rx, BlueZ.characteristic,
          [
            ("UUID", .string(RadioService.rx)), ("Flags", .array(element: "s", flags.map { .string($0) })),
          ]),
        object(Self.tx, BlueZ.characteristic, [("UUID", .string(RadioService.tx))]),
      ])
  }

  private func object(_ path: String, _ interface: String, _ values: [(String, BusValue)]) -> BusValue {
    .entry(.objectPath(path), .array(element: "{sa{sv}}", [.entry(.string(interface), .options(values))]))
  }
}

/// The link with all layers between the session and BlueZ, on a real bus.
@Suite(.serialized) struct BluetoothLinkTests {
  private let loop = EventLoop()
  private let log = Log(level: .error, sink: { _, _ in })
  private let daemon: MessageBus

  init() throws { daemon = try MessageBus() }

  private final class Notes {
    var (ups, downs, frames): (Int, [LinkError], [[UInt8]]) = (0, [], [])
  }

  private func link(_ options: BluetoothOptions = BluetoothOptions()) -> (link: BluetoothLink, notes: Notes) {
    let notes = Notes()
    let link = BluetoothLink(
      .address("C0:FF:EE:00:00:01"), options, on: loop, log: log, bus: daemon.address)
    link.onEvent = { event in
      switch event {
      case .up: notes.ups += 1
      case .down(let error): notes.downs.append(error)
      case .frame(let frame): notes.frames.append(frame)
      case .bytes, .leftOver: break
      }
    }
    return (link, notes)
  }

  private func run(until condition: () -> Bool, _ what: Comment) throws {
    let isSo = turn(loop, until: condition)
    try #require(isSo, what)
  }

  @Test(arguments: [true, false])
  func `frames pass in both directions in order, and a lost link returns`(_ hasSockets: Bool) throws {
    let bluez = FakeBlueZ(daemon.address, on: loop, hasSockets: hasSockets)
    let (link, notes) = link()
    link.open()
    try run(until: { notes.ups == 1 }, "up")
    for round in 1...2 {
      let sent = (0..<10).map { [UInt8(round), $0] }
      for frame in sent {
        link.send(frame)
        bluez.send(frame)
      }
      try run(
        until: { bluez.frames().suffix(10).elementsEqual(sent) && notes.frames.suffix(10).elementsEqual(sent) }, "all")
      guard round == 1 else { break }
      bluez.lose()
      let lost = LinkError.bluetooth(.lost(address: "C0:FF:EE:00:00:01"))
      // At first BlueZ may be absent.
      try run(until: { notes.downs.last == lost }, "lost")
      try run(until: { notes.ups == 2 }, "back")
    }
    #expect(bluez.calls.contains(hasSockets ? "AcquireWrite" : "WriteValue"))
    link.close()
    try run(until: { bluez.calls.last == "Disconnect" }, "disconnected")
    link.end()
    bluez.end()
    loop.turn(wait: false)
    #expect(loop.watchCount == 0 && loop.waitingTimers == 0)
  }

  @Test func `a radio is paired with the PIN, and no other device gets the PIN`() throws {
    let bluez = FakeBlueZ(daemon.address, on: loop, isPaired: false)
    let (link, notes) = link(BluetoothOptions(pin: 42))
    link.open()
    try run(until: { notes.ups == 1 && bluez.passkey != nil }, "paired")
    #expect(bluez.passkey == .uint32(42))
    link.end()
    bluez.end()
    loop.turn(wait: false)
  }

  @Test func `an unanswered call to a bluetoothd that ended changes nothing with its successor`() throws {
    for fatal in ["GetManagedObjects", "Connect", "AcquireNotify", "AcquireWrite"] {
      let first = FakeBlueZ(daemon.address, on: loop)
      first.diesOn = fatal
      let (link, notes) = link()
      link.open()
      try run(until: { !notes.downs.isEmpty }, "\(fatal): it is gone")
      guard case .bluetooth(.noService)? = notes.downs.last else {
        Issue.record("\(fatal): \(notes.downs)")
        return
      }
      let second = FakeBlueZ(daemon.address, on: loop)
      try run(until: { notes.ups == 1 }, "\(fatal): up with the next")
      link.send([1])
      try run(until: { second.frames() == [[1]] }, "\(fatal): frames go to the next")
      link.end()
      second.end()
      loop.turn(wait: false)
      #expect(loop.watchCount == 0 && loop.waitingTimers == 0)
    }
  }

  @Test func `a scan finds the radio, and a radio can be removed`() throws {
    let bluez = FakeBlueZ(daemon.address, on: loop)
    let tools = BluetoothTools(on: loop, log: log, bus: daemon.address)
    var (found, trouble): ([DeviceFacts], BluetoothTrouble?) = ([], nil)
    var isOver = false
    _ = loop.begin {
      do {
        found = try await tools.scan(adapter: nil, seconds: 1)
        try await tools.forget(address: "c0:ff:ee:00:00:01", adapter: "hci0")
        try await tools.forget(address: "00:00:00:00:00:00", adapter: nil)
      } catch {
        trouble = error as? BluetoothTrouble
      }
      isOver = true
    }
    try run(until: { isOver }, "over")
    #expect(found.map(\.address) == ["C0:FF:EE:00:00:01"] && found.first?.rssi == -60)
    #expect(bluez.calls.contains("RemoveDevice"))
    #expect(trouble == .notFound("00:00:00:00:00:00"))
    bluez.end()
    loop.turn(wait: false)
    #expect(loop.watchCount == 0 && loop.waitingTimers == 0)
  }

  @Test func `a hundred links that are opened, lost and closed leave nothing behind`() throws {
    let bluez = FakeBlueZ(daemon.address, on: loop)
    weak var last: BluetoothLink?
    func once(_ round: Int) throws {
      let (link, notes) = link()
      last = link
      link.open()
      // The link also ends while it is being opened.
      if round % 4 == 3 {
        for _ in 0..<round % 16 { loop.turn(wait: true) }
      } else {
        try run(until: { notes.ups == 1 }, "up")
        if round % 4 == 2 {
          bluez.lose()
          try run(until: { !notes.downs.isEmpty }, "lost")
        }
        if round % 4 == 1 { link.close() }
      }
      link.end()
      loop.turn(wait: false)
    }
    try once(0)
    // BlueZ's resources for a link end when BlueZ notices that the link has left.
    try run(until: { loop.watchCount == 1 && loop.waitingTimers == 0 }, "only BlueZ is left")
    let descriptors = openDescriptors()
    for round in 0..<100 { try once(round) }
    try run(until: { loop.watchCount == 1 && loop.waitingTimers == 0 }, "only BlueZ is left")
    #expect(openDescriptors() - descriptors < 20)
    #expect(last == nil, "its tasks have ended")
    bluez.end()
    loop.turn(wait: false)
  }
}
