// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import Testing

@testable import RadioSharing

@Suite struct ClientRouteTests {
  private let key = PublicKey(bytes: Array(repeating: 7, count: 32))!

  @Test(arguments: [
    (Command.reboot, SharingSettings.Danger.reboot), (.factoryReset, .factoryReset), (.exportPrivateKey, .privateKey),
    (.importPrivateKey([]), .privateKey), (.setDevicePIN(1), .pin), (.signFinish, .sign), (.setDeviceTime(5), .time),
    (.setTxPower(22), .radio), (.setTuning(Tuning(rxDelayBase: 0, airtimeFactor: 0)), .radio),
    (.setAdvertName("x"), .name), (.setAdvertPosition(latitude: 0, longitude: 0, altitude: nil), .position),
    (.sendSelfAdvert(flood: nil), .advert), (.importContact(card: []), .contacts),
    (.setChannel(Channel(slot: 1, name: "", secret: .zero)), .channels), (.setPathHashMode(1), .settings),
    (.setOtherParameters(OtherParameters(manualAddContacts: 1)), .settings), (.setDefaultFloodScope(nil), .settings),
    (.setCustomVariable("gps:1"), .settings), (.sendRawPacket(priority: 0, packet: [1, 2]), .raw),
    (.removeContact(PublicKey(bytes: Array(repeating: 7, count: 32))!), .contacts),
    (.resetPath(PublicKey(bytes: Array(repeating: 7, count: 32))!), .contacts),
    (.shareContact(PublicKey(bytes: Array(repeating: 7, count: 32))!), .advert),
  ])
  func `a harmful command is refused unless it is allowed`(command: Command, danger: SharingSettings.Danger) {
    #expect(ClientRoute(command, allows: []) == .danger(danger))
    #expect(ClientRoute(command, allows: Set(SharingSettings.Danger.allCases).subtracting([danger])) == .danger(danger))
    #expect(ClientRoute(command, allows: [danger]) != .danger(danger))
  }

  @Test func `letting a node run commands needs a permission of its own, and keeping it does not`() {
    let key = PublicKey(bytes: Array(repeating: 7, count: 32))!
    let command = Command.addUpdateContact(Contact(key: key, flags: 1 | Contact.commandFlag, name: "r1"))
    #expect(ClientRoute(command, allows: [.contacts]) == .danger(.commands))
    #expect(ClientRoute(command, allows: [.commands]) == .danger(.contacts))
    #expect(ClientRoute(command, allows: [.contacts, .commands]) == .radio)
    #expect(ClientRoute(command, allows: [.contacts]) { $0 == key } == .radio)
    #expect(ClientRoute(.addUpdateContact(Contact(key: key, flags: 1, name: "r1")), allows: [.contacts]) == .radio)
  }

  @Test func `every unknown command is refused`() {
    for code in UInt8.min...UInt8.max where CommandCode(rawValue: code) == nil {
      let route = ClientRoute(.unknown(code: code, payload: []), allows: Set(SharingSettings.Danger.allCases))
      #expect(route == .refused(.unsupported), "\(code)")
    }
    #expect(ClientRoute(.setFloodScopeKey(.unknown(mode: 9, rest: [])), allows: []) == .refused(.unsupported))
  }

  @Test func `every client may set the right time, and a wrong time needs permission`() {
    let now: Int64 = 1_795_000_000
    for (time, now, isRight) in [
      (1_795_000_050, now, true), (1_794_999_950, now, true), (1_795_000_061, now, false), (0, now, false),
      (.max, now, false), (1_795_000_000, nil, false),
    ] as [(UInt32, Int64?, Bool)] {
      let route = ClientRoute(.setDeviceTime(time), allows: [], now: now)
      #expect(route == (isRight ? .radio : .danger(.time)), "\(time)")
    }
  }

  @Test func `messages and contact lists come from the store, and other answers from the radio`() {
    #expect(ClientRoute(.syncNextMessage, allows: []) == .nextMessage)
    #expect(ClientRoute(.getContacts(since: nil), allows: []) == .contacts(since: 0))
    #expect(ClientRoute(.getBattery, allows: []) == .radio)
  }

  @Test func `a request to another node is matched with its answer`() throws {
    let answer = try #require(RemoteAnswer(to: .sendStatusRequest(key)))
    #expect(ClientRoute(.sendStatusRequest(key), allows: []) == .request(answer))
    let tag = AckCode(value: 5)
    #expect(answer.isAnswered(by: .statusResponse(key.prefix, data: []), tag: tag))
    #expect(!answer.isAnswered(by: .statusResponse(KeyPrefix(value: 1), data: []), tag: tag))
    #expect(!answer.isAnswered(by: .binaryResponse(tag: tag, data: []), tag: tag))
    #expect(ClientRoute(.sendTelemetryRequest(nil), allows: []) == .radio, "the radio's own is answered at once")
  }
}

@Suite struct ClientPositionTests {
  @Test func `what a client asks for without waiting counts as received once its machine has it`() {
    var position = ClientPosition(after: 5)
    // Three requests in one packet.
    for message in [6, 7, 8] as [Int64] {
      position.confirm()
      position.deliver(message)
    }
    #expect(position.confirmed == 7 && position.received == 5)
    #expect(position.takeUnsaved() == 5, "a new position")
    position.wasTaken()
    #expect(position.received == 7)
    #expect(position.takeUnsaved() == 7)
    #expect(position.takeUnsaved() == nil)
    position.confirm()
    #expect(position.takeUnsaved() == 8)
  }

  @Test func `a position is stored after 32 messages`() {
    var position = ClientPosition(after: 0, isStored: true)
    for message in 1...32 as ClosedRange<Int64> {
      #expect(!position.isDue)
      position.deliver(message)
      position.wasTaken()
      position.confirm()
    }
    #expect(position.isDue)
    #expect(position.takeUnsaved() == 32)
    #expect(!position.isDue)
  }
}

@Suite struct ListenAddressTests {
  @Test(arguments: [
    ("127.0.0.1:5000", true), ("[::1]:5000", true), ("0.0.0.0:1", false), ("[fd00::1]:5000", false),
  ])
  func `a numeric listening address is parsed`(text: String, isLoopback: Bool) {
    let address = ListenAddress(text)
    #expect(address?.address.isLoopback == isLoopback)
    #expect(address?.description == text)
  }

  @Test(arguments: ["", "5000", "localhost:5000", "127.0.0.1", "127.0.0.1:70000", "127.0.0.1:-1", "[::1:5000"])
  func `another listening address is refused`(text: String) { #expect(ListenAddress(text) == nil) }

  @Test(arguments: [
    ("192.168.1.0/24", "192.168.1.77", true), ("192.168.1.0/24", "192.168.2.1", false),
    ("10.0.0.0/7", "11.1.1.1", true),
    ("10.0.0.5", "10.0.0.5", true), ("10.0.0.5", "10.0.0.4", false), ("fd00::/8", "fdff::1", true),
    ("fd00::/8", "10.0.0.1", false), ("0.0.0.0/0", "1.2.3.4", true), ("10.0.0.5", "::ffff:10.0.0.5", true),
  ])
  func `an address range contains its addresses`(range: String, address: String, isIn: Bool) throws {
    #expect(try #require(AddressRange(range)).contains(try #require(IPAddress(address))) == isIn)
  }

  @Test(arguments: ["", "/8", "10.0.0.0/33", "10.0.0.0/x", "fd00::/129", "10.0.0.0/-1"])
  func `an invalid address range is refused`(text: String) { #expect(AddressRange(text) == nil) }
}
