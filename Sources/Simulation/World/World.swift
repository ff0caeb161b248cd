// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import FoundationEssentials
import Hub
import JSON
import Synchronization
import Timing
import VirtualRadio

/// Gateways, their radios on one mesh, a hub, a broker and a webhook, on one invented clock.
final class World {
  private let plan: Plan
  let root: String
  let clock = WorldClock()
  private let outside: EventLoop
  private let outsideMachine: WorldMachine
  let mesh: VirtualMesh
  /// The second gateway's, if it is not the first one's, too.
  private(set) var otherMesh: VirtualMesh?
  /// Texts from other places that somebody has heard there on the channel, with their senders: at most once each.
  private(set) var joined: [String: Int] = [:]
  var radios: [VirtualRadio] = []
  var gateways: [WorldGateway] = []
  let hub: WorldHub
  let otherHub: WorldHub?
  let broker: WorldBroker
  let webhook: WorldWebhook
  let hook: WorldHook?
  private(set) var story: [String] = []
  var lastText = 0
  var lastKey = 0
  private var nextHour = MonotonicTime(seconds: 1000)
  /// Milliseconds by which the hub's clock is wrong.
  let hubOffset = Shared(Int64(0))
  /// What each server had from gateways in 15 minutes in which nothing happened.
  private(set) var calmBytes: [Int] = []
  /// Copies of hub and card that are older than the present ones: what was lost with them may be gone.
  var hubWasPutBack = false

  final class Shared: Sendable {
    let value: Mutex<Int64>
    init(_ value: Int64) { self.value = Mutex(value) }
  }

  init(_ plan: Plan, in root: String) throws {
    (self.plan, self.root) = (plan, root)
    (outsideMachine, outside) = clock.begin()
    if plan.hasPairs == true { clock.listeners = [:] }
    mesh = VirtualMesh(on: outside, seed: plan.seed, airtimeFactor: 0.1) { _ in }
    hub = try WorldHub("hub", "\(root)/hub", gateways: ["A", "B"], on: outside, of: clock)
    otherHub =
      plan.hasOtherHub == true
      ? try WorldHub("other hub", "\(root)/other", gateways: ["A", "B"], on: outside, of: clock) : nil
    hub.refusesLinks = plan.refusesLinks ?? false
    broker = WorldBroker("broker", on: outside, of: clock)
    webhook = WorldWebhook("webhook", on: outside, of: clock)
    hook = plan.hasHook == true ? WorldHook(answersAgain: !plan.changesCards) : nil
    let (time, offset) = (InventedNow(clock), hubOffset)
    let ofHub = HubClock.Invented { time.milliseconds + offset.value.withLock { $0 } }
    HubClock.invented.withLock { $0 = ofHub }
    if plan.exchanges == true {
      otherMesh = VirtualMesh(on: outside, seed: plan.seed &+ 1, airtimeFactor: 0.1) { _ in }
    }
    for number in 0..<(otherMesh == nil ? 5 : 6) {
      var settings = VirtualRadioSettings(
        name: "r\(number)", seed: plan.seed &* 1000 &+ UInt64(number), queueCapacity: 256,
        clock: UInt32(WorldClock.beginning / 1000))
      settings.age = .seconds(3600)
      let place = number == 1 || number == 5 ? otherMesh ?? mesh : mesh
      radios.append(place.add(settings))
    }
    // `try?`: this task is never cancelled.
    for mesh in meshes { _ = outside.begin { try? await mesh.advertiseAll() } }
    for (radio, ear) in [(4, "r4"), (5, "r5")] where radios.indices.contains(radio) {
      radios[radio].onMessage = { [unowned self] message in
        guard case .channel(let message) = message, message.text.string.contains("⇄") else { return }
        joined["\(ear) \(message.text.string)", default: 0] += 1
      }
    }
    clock.pass(until: clock.now + .seconds(1))
    try add("A", id: "A", radios[0])
    if plan.hasTwo { try add("B", id: "B", radios[1]) }
  }

  var meshes: [VirtualMesh] { [mesh] + (otherMesh.map { [$0] } ?? []) }

  /// The mesh of a gateway, and the radio on it that hears and sends for everybody.
  func place(of gateway: Int) -> (mesh: VirtualMesh, person: String) {
    if gateway == 1, let otherMesh { return (otherMesh, "r5") }
    return (mesh, "r4")
  }

  /// Somebody writes on the channel.
  func say(in place: (mesh: VirtualMesh, person: String)) { place.mesh.perform("chan \(place.person) 0 \(text())") }

  var hubs: [WorldHub] { [hub] + (otherHub.map { [$0] } ?? []) }
  var servers: [Server] { hubs + [broker, webhook] }

  private func add(_ name: String, id: String, _ radio: VirtualRadio) throws {
    let gateway = try make(name, id: id, radio)
    gateway.hasPowerCuts = plan.hasPowerCuts
    gateways.append(gateway)
    gateway.start()
  }

  /// A gateway with what it finds on its machine.
  func make(_ name: String, id: String, _ radio: VirtualRadio) throws -> WorldGateway {
    let gateway = try WorldGateway(
      name, id: id, radio, in: root, on: clock, servers: servers, tell: { [unowned self] in tell($0) })
    gateway.configuration = { [unowned self] folder in try configuration(of: name, id: id, folder) }
    if let hook {
      gateway.machine.programs = { program, loop in try await hook.run(program, of: name, on: loop) }
    }
    return gateway
  }

  private func configuration(of name: String, id: String, _ folder: String) throws -> String {
    try "\(WorldHub.token)-\(id)\n".write(toFile: "\(folder)/hub.token", atomically: true, encoding: .utf8)
    let other = try otherHub.map {
      """
      [[upstream]]
      name = "other hub"
      url = "http://127.0.0.1:\(try $0.port(of: name))"
      token_file = "\(folder)/hub.token"

      """
    }
    return """
      [gateway]
      id = "\(id)"
      [radio]
      link = "tcp:127.0.0.1:1"
      \(plan.exchanges == true ? "[relay]\nmessages_from_hub = true\nchannels = [\"Public\"]" : "")
      [store]
      location = "\(folder)/gw.db"
      \(try Self.upstreams(of: name, hub, broker, webhook, folder))
      \(other ?? "")
      \(hook == nil ? "" : WorldHook.configuration)
      """
  }

  /// The control socket, and three servers of a gateway.
  static func upstreams(
    of gateway: String, _ hub: Server, _ broker: Server, _ webhook: Server, _ folder: String
  ) throws -> String {
    """
    [control]
    socket = "\(folder)/ctl"
    [[upstream]]
    name = "hub"
    url = "http://127.0.0.1:\(try hub.port(of: gateway))"
    token_file = "\(folder)/hub.token"
    allow = ["send"]
    [[upstream]]
    name = "broker"
    kind = "mqtt"
    url = "mqtt://127.0.0.1:\(try broker.port(of: gateway))"
    [[upstream]]
    name = "webhook"
    kind = "webhook"
    url = "http://127.0.0.1:\(try webhook.port(of: gateway))/hook"
    """
  }

  func tell(_ line: String) {
    let seconds = clock.elapsed / 1000
    let (day, rest) = (seconds / 86400, seconds % 86400)
    func two(_ number: Int64) -> String { number < 10 ? "0\(number)" : "\(number)" }
    story.append("day \(day) \(two(rest / 3600)):\(two(rest / 60 % 60)):\(two(rest % 60)) \(line)")
    if story.count > 4000 { story.removeFirst(1000) }
  }

  // MARK: Running

  /// Carries out the plan, heals the world, and returns the laws that did not hold.
  func run() throws -> [String] {
    for entry in plan.entries {
      pass(until: MonotonicTime(seconds: 1000) + .milliseconds(entry.at))
      tell("— \(entry.happening)")
      try perform(entry.happening)
    }
    pass(until: MonotonicTime(seconds: 1000) + .milliseconds(plan.length))
    try heal()
    var laws = Laws(self)
    try laws.check()
    for gateway in gateways { gateway.beginEnd() }
    clock.pass(until: clock.now + .seconds(120)) { gateways.allSatisfy(\.hasEnded) }
    for gateway in gateways where !gateway.hasEnded { gateway.breaches.append("does not end within two minutes") }
    for gateway in gateways where gateway.hasEnded { gateway.ended() }
    clock.pass(until: clock.now + .seconds(5))
    laws.checkEnded()
    return laws.problems
  }

  private func pass(until end: MonotonicTime) {
    while clock.now < end {
      if clock.now >= nextHour {
        nextHour = clock.now + .seconds(3600)
        for gateway in gateways { gateway.checkHour() }
      }
      clock.pass(until: min(end, nextHour)) { gateways.contains(where: \.isDead) }
      for gateway in gateways where gateway.isDead {
        tell("gateway \(gateway.name) was killed before a commit")
        gateway.bury()
      }
      if clock.now >= end { break }
    }
  }

  func after(_ seconds: Int, _ action: @escaping () -> Void) {
    _ = outside.schedule(after: .seconds(seconds), action)
  }

  private func heal() throws {
    tell("— everything is well from here on")
    for server in servers { server.mood = .well }
    hubOffset.value.withLock { $0 = 0 }
    for mesh in meshes { mesh.perform("loss 0") }
    for gateway in gateways {
      (gateway.diskFails, gateway.diskFailsOnce, gateway.machine.isStopped) = (false, false, false)
      (gateway.machine.wallOffset, gateway.machine.isWallSynchronised) = (0, true)
      gateway.link.isPresent = true
      (gateway.link.isSilent, gateway.link.isHeldUp, gateway.link.bytesUntilCut) = (false, false, nil)
      (gateway.link.losesNext, gateway.link.doublesNext, gateway.link.swapsNext) = (false, false, false)
      try gateway.writeConfiguration()
      gateway.page.isOpen = true
      if gateway.isRunning { gateway.page.follow("\(gateway.folder)/ctl") } else { gateway.start() }
    }
    // What is idle meanwhile shows nothing.
    pass(until: clock.now + .seconds(60))
    for number in meshes.indices { say(in: place(of: number)) }
    // A server that said 401 is asked again after five minutes, a link that failed after fifteen, and one that wanted a pause after an hour at most.
    let wantsPause = plan.entries.contains { entry in
      if case .mood(_, .status(_, .some)) = entry.happening { true } else { false }
    }
    let minutes = wantsPause ? 75 : 40
    if let hook, hook.mood != .well {
      // It holds up nobody else.
      catchUp(within: minutes, except: .hook)
      hook.mood = .well
    }
    catchUp(within: minutes)
    let before = servers.map(\.received)
    // What ended here is told there.
    pass(until: clock.now + .seconds(900))
    calmBytes = zip(servers, before).map { $0.received - $1 }
    // An alert that came back again and again has to be over for longer each time, a day at most.
    let calm = clock.now + .seconds(25 * 3600)
    while clock.now < calm, gateways.contains(where: { !openAlerts($0).isEmpty }) {
      pass(until: clock.now + .seconds(3600))
    }
  }

  private func catchUp(within minutes: Int, except part: Happening.Part? = nil) {
    let end = clock.now + .seconds(minutes * 60)
    while clock.now < end {
      retryAll()
      pass(until: clock.now + .seconds(600))
      if gateways.allSatisfy({ isSettled($0, except: part) }) { return }
    }
    for gateway in gateways where !isSettled(gateway, except: part) {
      gateway.breaches.append("has not caught up in \(minutes) minutes in which all was well")
    }
  }

  /// A gateway ends at a moment that it has not chosen.
  var hasKills: Bool {
    plan.entries.contains { entry in
      switch entry.happening {
      case .kill, .killBeforeCommit, .powerCycle, .powerCut: true
      default: false
      }
    }
  }

  /// A hook may get an event again that it has taken: its gateway ends, or cannot keep its position.
  var mayRepeatForHooks: Bool {
    hasKills || plan.changesCards
      || plan.entries.contains { entry in
        switch entry.happening {
        case .restart, .rollBack, .disk, .diskFailsOnce: true
        default: false
        }
      }
  }

  /// A hub's clock steps, and a gateway's is not trusted at some time: it cannot tell what a former card may have sent.
  var nobodyKnowsTheTime: Bool {
    let steps = plan.entries.map { entry in
      switch entry.happening {
      case .hubClock: 1
      case .clock(_, _, trusted: false), .powerCycle, .powerCut: 2
      default: 0
      }
    }
    return Set(steps).isSuperset(of: [1, 2])
  }

  /// Dead letters are sent again, at servers that had a reason to refuse some.
  private func retryAll() {
    for part in Happening.Part.allCases where dislikes(part) { for gateway in gateways { retry(gateway, part) } }
  }

  private func dislikes(_ part: Happening.Part) -> Bool {
    plan.entries.contains { entry in
      switch entry.happening {
      case .mood(.hook, let mood) where part == .hook: mood != .well
      // A connection that always ends at the same byte takes what is shorter.
      case .mood(part, .dislikes), .mood(part, .cuts): true
      default: false
      }
    }
  }

  func isSettled(_ gateway: WorldGateway, except part: Happening.Part?) -> Bool {
    guard let status = gateway.json("/v1/status") else { return false }
    let upstreams = status["upstreams"]?.array?.filter { part == nil || $0["name"]?.string != part?.rawValue }
    let waiting: [Int64] =
      upstreams?.map { upstream in
        let dead = Happening.Part.allCases.contains { $0.rawValue == upstream["name"]?.string && dislikes($0) }
        return (upstream["pending"]?.integer ?? 0) + (dead ? upstream["dead_letters"]?.integer ?? 1 : 0)
      } ?? [1]
    return waiting.allSatisfy { $0 == 0 } && gateway.radio.queuedMessages == 0
  }

  /// Open alerts about what is well now.
  func openAlerts(_ gateway: WorldGateway) -> [String] {
    let alerts = gateway.json("/v1/status")?["alerts"]?.array ?? []
    return alerts.compactMap { $0["rule"]?.string }.filter { ["backlogged", "radio_lost", "disk_full"].contains($0) }
  }

  func text() -> String {
    lastText += 1
    return "m\(lastText)"
  }

  /// The number of a text that the world has made.
  static func number(_ text: String) -> Int? { text.hasPrefix("m") ? Int(text.dropFirst()) : nil }

  /// Whether the server refuses this text at some time, or others, too, at which a text may look like the reason.
  func isDisliked(_ text: String, at part: Happening.Part) -> Bool {
    plan.entries.contains { entry in
      guard case .mood(part, let mood) = entry.happening else { return false }
      if part == .hook { return mood != .well }
      return switch mood {
      case .dislikes(_, let every): Self.number(text)?.isMultiple(of: every) == true
      case .status, .takesHalf, .cuts: true
      default: false
      }
    }
  }

  func gateway(_ number: Int) -> WorldGateway? { gateways.indices.contains(number) ? gateways[number] : nil }

  func server(_ part: Happening.Part) -> Server? {
    switch part {
    case .hub: hub
    case .otherHub: otherHub
    case .broker: broker
    case .webhook: webhook
    case .hook: nil
    }
  }
}
