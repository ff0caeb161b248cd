// SPDX-License-Identifier: MIT

extension World {
  func perform(_ happening: Happening) throws {
    switch happening {
    case .channelMessages(let count):
      for _ in 0..<count { say(in: place(of: otherMesh == nil ? 0 : lastText % 2)) }
    case .directMessages(let number, let count):
      guard let gateway = gateway(number) else { return }
      let place = place(of: number)
      let sender = place.person == "r4" ? "r3" : place.person
      for _ in 0..<count { place.mesh.perform("dm \(sender) \(gateway.radio.settings.name) \(text())") }
    case .send(let number, let toChannel, let expires):
      lastKey += 1
      let (key, lifetime) = ("k\(lastKey)", expires.map { #","expires_s":\#($0)"# } ?? "")
      let to = toChannel ? "Public" : place(of: number).person
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
    // Names of servers are names of upstreams.
    case .skip(let number, let part): gateway(number)?.request("POST", "/v1/upstreams/skip?upstream=\(part.rawValue)")
    case .retry(let number, let part): retry(gateway(number), part)
    case .command(let number):
      guard let gateway = gateway(number) else { return }
      lastKey += 1
      let body = #"{"id":"c\#(lastKey)","command":"send","to":"\(place(of: number).person)","text":"s\#(lastKey)"}"#
      // The hub would wait for the gateway's answer, and the world for the hub.
      let answer = hub.ask("POST", "/v1/gateways/\(gateway.id)/commands?wait_s=0", body)
      tell("   \(answer?.text.prefix(120) ?? "no answer")")
    // A webhook's portal accepts everything, for all that a gateway can know (docs/reliability.md).
    case .mood(.hook, let mood): hook?.mood = mood
    case .mood(let part, let mood): server(part)?.mood = part == .webhook && mood == .portal ? .refuses : mood
    case .hangUp(let part): server(part)?.hangUp()
    case .stick(let part): server(part)?.stick()
    case .copyHub(let number): try hub.copy(number)
    case .putBackHub(let number):
      guard try hub.putBack(number) else { return }
      hubWasPutBack = true
      // What only the hub still had is gone with it, unless the gateway has learned of it from the hub.
      for gateway in gateways where gateway.cardWasEmptied || !gateway.knowsOfLoss {
        gateway.untellable.formUnion(gateway.lostWithCard)
      }
    case .restartHub: try hub.restart()
    case .upgradeHub(let version, let cut): try hub.upgrade(from: version, cut)
    case .rollBackHub: gateways[0].breaches += try hub.tryOlderProgram()
    case .ageHubCopy(let number, let version): try hub.ageCopy(number, to: version)
    case .hubClock(let step): hubOffset.value.withLock { $0 = step }
    case .stolenToken(let number, let count, let ownEpoch):
      if let gateway = gateway(number) { try forge(gateway, count, ownEpoch: ownEpoch) }
    case .air(let loss): for mesh in meshes { mesh.perform("loss \(loss)") }
    case .cloneCard: try clone()
    case .upgrade(let number, let version, let cut):
      if let gateway = gateway(number) { try end(gateway, thenFor: 1) { try gateway.becomeOlder(version, cut) } }
    case .rollBack(let number):
      if let gateway = gateway(number) { try end(gateway, thenFor: 1) { try gateway.tryOlderProgram() } }
    case .ageCopy(let number, let copy, let version): try gateway(number)?.ageCopy(copy, to: version)
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
    case .restart(let number): if let gateway = gateway(number) { end(gateway, thenFor: 1) {} }
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
    case .stop(let number, let seconds): set(\.machine.isStopped, to: true, of: number, for: seconds)
    case .diskFailsOnce(let number): gateway(number)?.diskFailsOnce = true
    case .disk(let number, let fails): gateway(number)?.diskFails = fails
    case .copyCard(let number, let copy): gateway(number)?.copyCard(copy)
    case .changeCard(let number, let copy):
      guard let gateway = gateway(number), copy.map(gateway.hasCopy) ?? true else { return }
      end(gateway, thenFor: 60) { change(gateway, copy) }
    case .removeLog(let number, let copy):
      guard let gateway = gateway(number) else { return }
      gateway.kill()
      gateway.copyCard(copy, withoutLog: true)
      change(gateway, copy)
      after(60) { gateway.start() }
    case .clock(let number, let step, let trusted):
      guard let machine = gateway(number)?.machine else { return }
      (machine.wallOffset, machine.isWallSynchronised) = (step, trusted)
    case .unplug(let number, let seconds): set(\.link.isPresent, to: false, of: number, for: seconds)
    case .cutLink(let number, let bytes): gateway(number)?.link.bytesUntilCut = bytes
    case .silence(let number, let seconds): set(\.link.isSilent, to: true, of: number, for: seconds)
    case .garbage(let number):
      gateway(number)?.link.say((0..<100).map { UInt8(truncatingIfNeeded: $0 &* 37 &+ 0x3E) })
    case .wrongReply(let number): gateway(number)?.link.falsifiesNext = true
    case .lateReplies(let number, let seconds): set(\.link.isHeldUp, to: true, of: number, for: seconds)
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

  private func set(
    _ part: ReferenceWritableKeyPath<WorldGateway, Bool>, to value: Bool, of number: Int, for seconds: Int
  ) {
    guard let gateway = gateway(number) else { return }
    gateway[keyPath: part] = value
    after(seconds) { gateway[keyPath: part] = !value }
  }

  /// Dead letters are what the server does not take, and nothing else; then they are sent again.
  func retry(_ gateway: WorldGateway?, _ part: Happening.Part) {
    guard let gateway, !gateway.diskFails, let letters = gateway.json("/v1/outbox")?["dead_letters"]?.array else {
      return
    }
    let texts = letters.filter { $0["upstream"]?.string == part.rawValue }.compactMap { $0["body"]?["text"]?.string }
    let innocent = texts.filter { text in !isDisliked(text, at: part) }
    if !innocent.isEmpty {
      gateway.breaches.append("dead letters that the \(part.rawValue) would take: \(innocent.prefix(8))")
    }
    if !letters.isEmpty { _ = gateway.ask("POST", "/v1/outbox/retry?upstream=\(part.rawValue)") }
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
    let atHub = Set(hubs.flatMap { (try? $0.messages(of: gateway.id)) ?? [] }.map(\.text))
    if lost.isDisjoint(with: atHub) { gateway.untellable.formUnion(lost) }
  }

  private func end(_ gateway: WorldGateway, thenFor seconds: Int, _ action: () throws -> Void) rethrows {
    gateway.end()
    try action()
    after(seconds) { gateway.start() }
  }

  private func clone() throws {
    guard gateways.count == 1, let original = gateways.first else { return }
    let gateway = try make("C", id: original.id, radios[1])
    gateway.clone(original)
    gateways.append(gateway)
    gateway.start()
  }
}
