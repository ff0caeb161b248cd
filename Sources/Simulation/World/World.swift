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
  private let root: String
  let clock = WorldClock()
  private let outside: EventLoop
  private let outsideMachine: WorldMachine
  private let mesh: VirtualMesh
  private var radios: [VirtualRadio] = []
  private(set) var gateways: [WorldGateway] = []
  let hub: WorldHub
  let broker: WorldBroker
  let webhook: WorldWebhook
  private(set) var story: [String] = []
  private var lastText = 0
  private var lastKey = 0
  private var nextHour = MonotonicTime(seconds: 1000)
  /// Milliseconds by which the hub's clock is wrong.
  private let hubOffset = Shared(Int64(0))
  /// Copies of hub and card that are older than the present ones: what was lost with them may be gone.
  private(set) var hubWasPutBack = false

  private final class Shared: Sendable {
    let value: Mutex<Int64>
    init(_ value: Int64) { self.value = Mutex(value) }
  }

  init(_ plan: Plan, in root: String) throws {
    (self.plan, self.root) = (plan, root)
    (outsideMachine, outside) = clock.begin()
    mesh = VirtualMesh(on: outside, seed: plan.seed, airtimeFactor: 0.1) { _ in }
    hub = try WorldHub("\(root)/hub", gateways: ["A", "B"], on: outside)
    hub.refusesLinks = plan.refusesLinks ?? false
    broker = WorldBroker("broker", on: outside)
    webhook = WorldWebhook("webhook", on: outside)
    let (time, offset) = (InventedNow(clock), hubOffset)
    HubClock.invented.withLock { $0 = { time.milliseconds + offset.value.withLock { $0 } } }
    for number in 0..<5 {
      var settings = VirtualRadioSettings(
        name: "r\(number)", seed: plan.seed &* 1000 &+ UInt64(number), queueCapacity: 256,
        clock: UInt32(WorldClock.beginning / 1000))
      settings.age = .seconds(3600)
      radios.append(mesh.add(settings))
    }
    // `try?`: this task is never cancelled.
    _ = outside.begin { [mesh] in try? await mesh.advertiseAll() }
    clock.pass(until: clock.now + .seconds(1))
    try add("A", id: "A", radios[0])
    if plan.hasTwo { try add("B", id: "B", radios[1]) }
  }

  /// The time that a hub's thread may read while the world waits for it.
  private final class InventedNow: @unchecked Sendable {
    private let clock: WorldClock
    init(_ clock: WorldClock) { self.clock = clock }
    var milliseconds: Int64 { WorldClock.beginning + clock.elapsed }
  }

  private func add(_ name: String, id: String, _ radio: VirtualRadio) throws {
    let gateway = try WorldGateway(
      name, id: id, radio, in: root, on: clock, servers: [hub, broker, webhook], tell: { [unowned self] in tell($0) })
    gateway.configuration = { [unowned self] folder in try configuration(of: name, id: id, folder) }
    gateway.hasPowerCuts = plan.hasPowerCuts
    gateways.append(gateway)
    gateway.start()
  }

  private func configuration(of name: String, id: String, _ folder: String) throws -> String {
    try "\(WorldHub.token)-\(id)\n".write(toFile: "\(folder)/hub.token", atomically: true, encoding: .utf8)
    return """
      [gateway]
      id = "\(id)"
      [radio]
      link = "tcp:127.0.0.1:1"
      [store]
      location = "\(folder)/gw.db"
      [control]
      socket = "\(folder)/ctl"
      [[upstream]]
      name = "hub"
      url = "http://127.0.0.1:\(try hub.port(of: name))"
      token_file = "\(folder)/hub.token"
      allow = ["send"]
      [[upstream]]
      name = "broker"
      kind = "mqtt"
      url = "mqtt://127.0.0.1:\(try broker.port(of: name))"
      [[upstream]]
      name = "webhook"
      kind = "webhook"
      url = "http://127.0.0.1:\(try webhook.port(of: name))/hook"

      """
  }

  private func tell(_ line: String) {
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
    pass(until: MonotonicTime(seconds: 1000) + .milliseconds(Int64(plan.days) * 86_400_000))
    try heal()
    var laws = Laws(self)
    let problems = try laws.check()
    for gateway in gateways { gateway.beginEnd() }
    clock.pass(until: clock.now + .seconds(120)) { gateways.allSatisfy(\.hasEnded) }
    for gateway in gateways where !gateway.hasEnded { gateway.breaches.append("does not end within two minutes") }
    for gateway in gateways { gateway.page.leave() }
    return problems + gateways.flatMap { gateway in gateway.breaches.map { "gateway \(gateway.name): \($0)" } }
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

  private func after(_ seconds: Int, _ action: @escaping () -> Void) {
    _ = outside.schedule(after: .seconds(seconds), action)
  }

  private func heal() throws {
    tell("— everything is well from here on")
    for server in [hub, broker, webhook] { server.mood = .well }
    hubOffset.value.withLock { $0 = 0 }
    mesh.perform("loss 0")
    for gateway in gateways {
      (gateway.diskFails, gateway.diskFailsOnce, gateway.machine.isStopped) = (false, false, false)
      (gateway.machine.wallOffset, gateway.machine.isWallSynchronised) = (0, true)
      gateway.link.isPresent = true
      (gateway.link.isSilent, gateway.link.isHeldUp, gateway.link.bytesUntilCut) = (false, false, nil)
      (gateway.link.losesNext, gateway.link.doublesNext, gateway.link.swapsNext) = (false, false, false)
      try gateway.writeConfiguration()
      gateway.start()
    }
    // A server that said 401 is asked again after five minutes, a link that failed after fifteen, an hour at most.
    let end = clock.now + .seconds(4 * 3600)
    while clock.now < end {
      pass(until: clock.now + .seconds(600))
      if gateways.allSatisfy(isSettled) { break }
    }
    // What ended here is told there.
    pass(until: clock.now + .seconds(900))
    // An alert that came back again and again has to be over for longer each time, a day at most.
    let calm = clock.now + .seconds(25 * 3600)
    while clock.now < calm, gateways.contains(where: { !openAlerts($0).isEmpty }) {
      pass(until: clock.now + .seconds(3600))
    }
  }

  func isSettled(_ gateway: WorldGateway) -> Bool {
    guard let status = gateway.json("/v1/status") else { return false }
    let pending = status["upstreams"]?.array?.map { $0["pending"]?.integer ?? 0 } ?? [1]
    return pending.allSatisfy { $0 == 0 } && gateway.radio.queuedMessages == 0
  }

  /// Open alerts about what is well now.
  func openAlerts(_ gateway: WorldGateway) -> [String] {
    let alerts = gateway.json("/v1/status")?["alerts"]?.array ?? []
    return alerts.compactMap { $0["rule"]?.string }.filter { ["backlogged", "radio_lost", "disk_full"].contains($0) }
  }

  private func text() -> String {
    lastText += 1
    return "m\(lastText)"
  }

  private func gateway(_ number: Int) -> WorldGateway? { gateways.indices.contains(number) ? gateways[number] : nil }

  private func server(_ part: Happening.Part) -> Server {
    switch part {
    case .hub: hub
    case .broker: broker
    case .webhook: webhook
    }
  }

  private func perform(_ happening: Happening) throws {
    switch happening {
    case .channelMessages(let count):
      for _ in 0..<count { mesh.perform("chan r4 0 \(text())") }
    case .directMessages(let number, let count):
      guard let gateway = gateway(number) else { return }
      for _ in 0..<count { mesh.perform("dm r3 \(gateway.radio.settings.name) \(text())") }
    case .send(let number, let toChannel, let expires):
      lastKey += 1
      let (key, lifetime) = ("k\(lastKey)", expires.map { #","expires_s":\#($0)"# } ?? "")
      let to = toChannel ? "Public" : "r4"
      let body = #"{"to":"\#(to)","text":"s\#(lastKey)","id":"\#(key)"\#(lifetime)}"#
      guard let gateway = gateway(number), let answer = gateway.ask("POST", "/v1/send", body) else { return }
      if answer.status < 300 { gateway.accepted.insert(key) }
      tell("   \(answer.status) \(String(decoding: answer.body.prefix(120), as: UTF8.self))")
    case .cancelSending(let number):
      guard let gateway = gateway(number) else { return }
      for row in gateway.rows("/v1/outgoing") where row["ended_at"] == nil {
        if let id = row["id"]?.string { _ = gateway.ask("POST", "/v1/outgoing/cancel?id=\(id)") }
      }
    case .resume(let number): _ = gateway(number)?.ask("POST", "/v1/outbox/resume")
    case .command(let number):
      guard let gateway = gateway(number) else { return }
      lastKey += 1
      let body = #"{"id":"c\#(lastKey)","command":"send","to":"r4","text":"s\#(lastKey)"}"#
      // The hub would wait for the gateway's answer, and the world for the hub.
      let answer = hub.ask("POST", "/v1/gateways/\(gateway.id)/commands?wait_s=0", body)
      tell("   \(answer?.text.prefix(120) ?? "no answer")")
    // A webhook's portal accepts everything, for all that a gateway can know (docs/reliability.md).
    case .mood(let part, let mood): server(part).mood = part == .webhook && mood == .portal ? .refuses : mood
    case .hangUp(let part): server(part).hangUp()
    case .stick(let part): server(part).stick()
    case .copyHub(let number): try hub.copy(number)
    case .putBackHub(let number):
      guard try hub.putBack(number) else { return }
      hubWasPutBack = true
      // What only the hub still had is gone with it, unless the gateway has learned of it from the hub.
      for gateway in gateways where gateway.cardWasEmptied || !gateway.knowsOfLoss {
        gateway.untellable.formUnion(gateway.lostWithCard)
      }
    case .restartHub: try hub.restart()
    case .hubClock(let step): hubOffset.value.withLock { $0 = step }
    case .stolenToken(let number, let count, let ownEpoch):
      if let gateway = gateway(number) { try forge(gateway, count, ownEpoch: ownEpoch) }
    case .air(let loss): mesh.perform("loss \(loss)")
    case .cloneCard: try clone()
    default: performAtGateway(happening)
    }
  }

  private func performAtGateway(_ happening: Happening) {
    switch happening {
    case .kill(let number, let seconds):
      guard let gateway = gateway(number) else { return }
      gateway.kill()
      after(seconds) { gateway.start() }
    case .killBeforeCommit(let number): gateway(number)?.armKillBeforeCommit()
    case .restart(let number): if let gateway = gateway(number) { end(gateway, thenFor: 1) }
    case .powerCycle(let number):
      guard let gateway = gateway(number) else { return }
      gateway.kill()
      bootWithoutClock(gateway)
    case .powerCut(let number, let loss):
      guard let gateway = gateway(number) else { return }
      gateway.cutPower(loss)
      bootWithoutClock(gateway)
    case .page(let number, let seconds):
      guard let gateway = gateway(number) else { return }
      gateway.page.isOpen = true
      if gateway.isRunning { gateway.page.follow("\(gateway.folder)/ctl") }
      after(seconds) {
        gateway.page.isOpen = false
        gateway.page.leave()
      }
    case .stop(let number, let seconds):
      guard let gateway = gateway(number) else { return }
      gateway.machine.isStopped = true
      after(seconds) { gateway.machine.isStopped = false }
    case .diskFailsOnce(let number): gateway(number)?.diskFailsOnce = true
    case .disk(let number, let fails): gateway(number)?.diskFails = fails
    case .copyCard(let number, let copy): gateway(number)?.copyCard(copy)
    case .changeCard(let number, let copy):
      guard let gateway = gateway(number), copy.map(gateway.hasCopy) ?? true else { return }
      end(gateway, thenFor: 60) { change(gateway, copy) }
    case .clock(let number, let step, let trusted):
      guard let machine = gateway(number)?.machine else { return }
      (machine.wallOffset, machine.isWallSynchronised) = (step, trusted)
    case .unplug(let number, let seconds):
      guard let gateway = gateway(number) else { return }
      gateway.link.isPresent = false
      after(seconds) { gateway.link.isPresent = true }
    case .cutLink(let number, let bytes): gateway(number)?.link.bytesUntilCut = bytes
    case .silence(let number, let seconds):
      guard let gateway = gateway(number) else { return }
      gateway.link.isSilent = true
      after(seconds) { gateway.link.isSilent = false }
    case .garbage(let number):
      gateway(number)?.link.say((0..<100).map { UInt8(truncatingIfNeeded: $0 &* 37 &+ 0x3E) })
    case .wrongReply(let number): gateway(number)?.link.falsifiesNext = true
    case .lateReplies(let number, let seconds):
      guard let gateway = gateway(number) else { return }
      gateway.link.isHeldUp = true
      after(seconds) { gateway.link.isHeldUp = false }
    case .doubledReply(let number): gateway(number)?.link.doublesNext = true
    case .lostReply(let number): gateway(number)?.link.losesNext = true
    case .swappedReplies(let number): gateway(number)?.link.swapsNext = true
    case .rebootRadio(let number): gateway(number)?.radio.reboot()
    case .otherRadio(let number):
      guard let gateway = gateway(number) else { return }
      let other = gateway.radio === radios[2] ? radios[number] : radios[2]
      guard !gateways.contains(where: { $0.radio === other }) else { return }
      gateway.plug(other)
    case .reload(let number, let isWrong):
      guard let gateway = gateway(number) else { return }
      // `try!`: the world's own folder in memory.
      try! gateway.writeConfiguration { isWrong ? $0.replacing("kind = \"mqtt\"", with: "kind = \"mqt\"") : $0 }
      gateway.reload()
    default: break
    }
  }

  /// A Raspberry Pi has no clock: it begins where it was, until NTP has answered.
  private func bootWithoutClock(_ gateway: WorldGateway) {
    gateway.machine.restart()
    gateway.machine.wallOffset -= 7000
    gateway.machine.isWallSynchronised = false
    after(30) { gateway.start() }
    after(300) { (gateway.machine.wallOffset, gateway.machine.isWallSynchronised) = (0, true) }
  }

  /// Writes to the hub in a gateway's name, as somebody with its token does. Such texts begin with an x.
  private func forge(_ gateway: WorldGateway, _ count: Int, ownEpoch: Bool) throws {
    let known = try hub.newest(of: gateway.id)
    lastKey += 1
    let epoch = ownEpoch ? known?.epoch ?? "f0f0f0f0f0f0f0f0" : "f0f0f0f0\(10_000_000 + lastKey)"
    let first = ownEpoch ? known?.seq ?? 0 : 0
    let events = (1...count).map { number in
      #"{"seq":\#(first + Int64(number)),"at":\#(WorldClock.beginning),"trusted":true,"kind":"message","body":{"text":"x\#(lastKey)-\#(number)"}}"#
    }
    gateway.isImitated = gateway.isImitated || ownEpoch
    let body = #"{"epoch":"\#(epoch)","events":[\#(events.joined(separator: ","))]}"#
    let answer = hub.forge(gateway.id, body)
    tell("   \(answer.status) \(String(decoding: answer.body.prefix(120), as: UTF8.self))")
  }

  private func change(_ gateway: WorldGateway, _ copy: Int?) {
    let known = gateway.lostWithCard
    gateway.changeCard(copy)
    let lost = gateway.lostWithCard.subtracting(known)
    // `try?`: a hub's database in memory can be read.
    let atHub = Set(((try? hub.messages(of: gateway.id)) ?? []).map(\.text))
    if lost.isDisjoint(with: atHub) { gateway.untellable.formUnion(lost) }
    // Also what the card before it knew to be lost.
    if copy == nil { gateway.untellable.formUnion(gateway.lostWithCard) }
  }

  private func end(_ gateway: WorldGateway, thenFor seconds: Int, _ action: () -> Void = {}) {
    gateway.beginEnd()
    clock.pass(until: clock.now + .seconds(120)) { gateway.hasEnded }
    if !gateway.hasEnded { gateway.breaches.append("does not end within two minutes") }
    gateway.ended()
    action()
    after(seconds) { gateway.start() }
  }

  private func clone() throws {
    guard gateways.count == 1, let original = gateways.first else { return }
    let gateway = try WorldGateway(
      "C", id: original.id, radios[1], in: root, on: clock, servers: [hub, broker, webhook],
      tell: { [unowned self] in tell($0) })
    gateway.configuration = { [unowned self] folder in try configuration(of: "C", id: original.id, folder) }
    gateway.clone(original)
    gateways.append(gateway)
    gateway.start()
  }
}
