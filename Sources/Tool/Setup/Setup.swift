// SPDX-License-Identifier: MIT

import ArgumentParser
import Glibc
import Transport
import UntrustedText

/// First-time setup: finds the radio, asks for servers, writes the configuration, starts the gateway, and tests it.
struct SetupCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "setup", abstract: "Set up the gateway on this machine: radio, servers, configuration, service.",
    discussion: Examples.of(
      "setup",
      after: """
        Prompts for everything that is not given by options; with --unattended it never prompts. An existing configuration is \
        kept: options change it or add to it, and repeating them changes nothing. The gateway checks the new configuration \
        before it replaces the previous one, which is saved beside it; what the gateway refuses is asked again or, with \
        --unattended, not written. The gateway's name changes only with --name. Secrets are read from files or typed without echo, and \
        stored readable by root only. Exits with 0 if the gateway runs and everything answers, with 69 if it runs and \
        something does not answer yet.
        """))

  @Option(help: "The radio's link: serial:…, ble:…, tcp:…, auto:.") var link: String?
  @Option(help: "Only accept the radio with this public key prefix (8 hex digits or more).") var key: String?
  @Option(help: "The file whose first line is the PIN of a Bluetooth radio.", completion: .file()) var pinFile: String?
  @Option(help: "The gateway's name for upstreams.") var name: String?
  @Option(help: "A hub or broker to forward to: [NAME=]URL. May be repeated.") var upstream: [String] = []
  @Option(help: "The file with an upstream's token or password: [NAME=]FILE. May be repeated.", completion: .file())
  var tokenFile: [String] = []
  @Option(help: "The user name for an MQTT broker: [NAME=]USER. May be repeated.") var user: [String] = []
  @Option(
    help: """
      What an upstream may make this gateway do: [NAME=]RIGHTS, \(UpstreamRights.help). May be repeated. A new upstream \
      may do nothing unless this says so.
      """) var allow: [String] = []
  @Option(help: "Where a new upstream starts: [NAME=]START, \(UpstreamStart.help). May be repeated.")
  var from: [String] = []
  @Option(help: "The configuration file to write.", completion: .file()) var config = Setup.serviceFile
  @Flag(help: "Never prompt.") var unattended = false
  @Flag(help: "Start over: keep only the gateway's name. The old configuration is saved.")
  var replace = false
  @Flag(help: "Do not advertise the radio. By default an advert is sent once to direct neighbours.") var noAdvert =
    false
  @Flag(help: "Write the configuration without starting the gateway.") var noStart = false

  func validate() throws {
    if name == "" { throw ValidationError("--name: \(Setup.names)") }
    if pinFile == "" { throw ValidationError("--pin-file: the name of the file is empty") }
    guard let host = Connection.hostOfEnvironment else { return }
    throw ValidationError(
      "setup is for this machine, and MESHPOST_HOST names \(host): run it there (`ssh -t HOST sudo meshpost setup`), or "
        + "here without MESHPOST_HOST")
  }

  func run() throws {
    var setup = Setup(config: config, isUnattended: unattended)
    try setup.lookAround(beginsAnew: replace)
    try setup.chooseRadio(link: link, key: key, pinFile: pinFile)
    if let name { setup.name = name }
    if noAdvert { setup.advertises = false }
    for (place, text) in upstream.enumerated() {
      setup.upstreams.append(
        try Setup.Upstream(
          text, number: place + 1, tokens: tokenFile, users: user, rights: allow, starts: from))
    }
    try setup.checkUse(of: tokenFile, as: "--token-file")
    try setup.checkUse(of: user, as: "--user")
    try setup.checkUse(of: allow, as: "--allow")
    try setup.checkUse(of: from, as: "--from")
    setup.settleNames()
    try GivenOnce.check(setup.upstreams.map(\.name), "--upstream")
    try setup.checkRivals()
    try setup.checkSuccessors()
    if !unattended { try setup.askForUpstreams() }
    if !unattended, !noAdvert, !noStart { try setup.askForAdvert() }
    try setup.writeConfiguration()
    if !noStart { try setup.start() }
  }
}

/// The settings to be written.
struct Setup {
  let config: String
  let isUnattended: Bool
  /// `nil`: as in the configuration, or automatic.
  var link: String?
  var key: String?
  var pinFile: String?
  var name: String?
  var upstreams: [Upstream] = []
  /// Whether the gateway does so once, at its first connection with this radio; `nil`: as in the configuration, otherwise yes.
  var advertises: Bool?
  /// The existing configuration, if setup edits it.
  var existing: ConfigurationText?
  /// The upstreams of `meshpost upstream add`, which stay.
  var added: [ConfigurationText.Upstream] = []
  /// Secrets that the user typed, or that come from files, by their names in storage.
  var secrets: [String: String] = [:]

  /// The gateway's database.
  private var store: String { existing?.string("store", "location") ?? Self.serviceStore }
  static let serviceStore = "/var/lib/meshpost/gateway.db"

  // MARK: Steps

  static let mark = "# Written by `meshpost setup`"

  /// Reads the existing configuration as the starting point, unless starting over.
  mutating func lookAround(beginsAnew: Bool) throws {
    let folder = Folder.of(config)
    if access(folder, W_OK) != 0 {
      switch errno {
      case EACCES, EPERM: throw Failure.say("cannot write to \(folder): run `sudo meshpost setup`", EX_NOPERM)
      case ENOENT:
        throw Failure.say(
          "there is no folder \(folder): install the package, make the folder (`sudo mkdir -p \(folder)`), or name "
            + "another file with --config", EX_CANTCREAT)
      case let code: throw Failure.say("cannot write to \(folder): \(String(cString: strerror(code)))", EX_CANTCREAT)
      }
    }
    removeLeft()
    defer { added = ConfigurationText.added(beside: store) }
    guard let old = try InputFile.text(config) else { return }
    if beginsAnew {
      let kept = ConfigurationText(ifReadable: old, location: config)?.string("gateway", "id")
      name = kept.flatMap { Self.isName($0) ? $0 : nil }
    } else {
      let text = try ConfigurationText(old, location: config)
      // In the packaged file every key is commented out.
      existing = text.isEmpty ? nil : text
    }
  }

  mutating func chooseRadio(link: String?, key: String?, pinFile: String?) throws {
    (self.key, self.pinFile) = (key, pinFile)
    try findRadio(link, key)
    let address = self.link ?? existing?.string("radio", "link") ?? "auto:"
    guard pinFile == nil || address.begins(with: "ble:") else {
      throw ValidationError("--pin-file: the radio at \(address) has no PIN, only one over Bluetooth (ble:…) has one")
    }
  }

  private mutating func findRadio(_ link: String?, _ key: String?) throws {
    if let link {
      do { _ = try LinkAddress(parsing: link) } catch { throw ValidationError("--link: \(error)") }
      self.link = link
      return try askForPIN()
    }
    if let configured = existing?.string("radio", "link") {
      guard !isUnattended, try !Dialogue.yes("Keep the radio at \(configured)?", standard: true) else { return }
    }
    let found = Probing.look(at: SerialDevices.all(), besides: Probing.radioInUse())
    let radios = found.filter(\.isRadio)
    for device in found { print("\(device.device)  \(device.description)") }
    if isUnattended {
      // With a key the daemon finds the radio by the key; otherwise by its current device.
      if key == nil, radios.count == 1 { self.link = "serial:\(radios[0].device)" }
      if key == nil, radios.count > 1 {
        throw Failure.say("several radios found: choose one with --link or --key", EX_CONFIG)
      }
      return
    }
    try choose(radios)
    try askForPIN()
  }

  private mutating func choose(_ radios: [Probing.Found]) throws {
    for (number, radio) in radios.enumerated() { print("  \(number + 1)  \(radio.device)  \(radio.description)") }
    print("  b  a radio over Bluetooth")
    print("  t  a radio on the network (Wi-Fi, Ethernet)")
    print("  a  a radio that will be plugged in later")
    link = try Dialogue.fitting("Which radio?", standard: radios.isEmpty ? "a" : "1") { answer in
      let link: String
      switch answer {
      case "a": link = "auto:"
      case "b": link = try "ble:" + Dialogue.line("Name or address (empty: the only one in range)", standard: "")
      case "t": link = try "tcp:" + Dialogue.line("Address, HOST or HOST:PORT", standard: "")
      default:
        guard let number = UInt16(answer).map(Int.init), radios.indices.contains(number - 1) else {
          return .unfit("a number of the list, b, t or a")
        }
        link = "serial:\(radios[number - 1].device)"
      }
      do { _ = try LinkAddress(parsing: link) } catch { return .unfit("\(error)") }
      return .fits(link)
    }
  }

  private mutating func askForPIN() throws {
    guard link?.hasPrefix("ble:") == true, pinFile == nil, existing?.string("radio", "pin_file") == nil, !isUnattended
    else { return }
    try enterPIN()
  }

  private mutating func enterPIN() throws {
    secrets[Self.nameOfPIN] = try Dialogue.secret("The PIN from its display or settings (empty: none)") {
      BluetoothOptions.pin($0) == nil ? "a PIN has 6 digits, such as 123456" : nil
    }
    pinFile = secrets[Self.nameOfPIN] == nil ? "" : Self.nameOfPIN
  }

  /// Asks again for the answer that the gateway refuses in `text`. False: no question is about it.
  mutating func ask(again mistake: ConfigurationCheck.Remark, in text: ConfigurationText) throws -> Bool {
    switch mistake.key {
    case "gateway.id":
      name = try Dialogue.fitting("The gateway's name", standard: Self.nearestName(text.string("gateway", "id") ?? ""))
      {
        Self.isName($0) ? .fits($0) : .unfit(Self.names)
      }
    case "radio.link": try choose([])
    case "radio.key":
      key = try Dialogue.line(
        "The beginning of the radio's public key, 8 hex digits or more (empty: any radio)", standard: "")
    case "radio.pin", "radio.pin_file": try enterPIN()
    case "upstream.url":
      guard let wrong = text.upstreams.last(where: { $0.line <= mistake.line }) else { return false }
      let url = try askForURL("URL of \(wrong.name)", besides: wrong.name)
      let known = upstreams.firstIndex { $0.name.isExactly(wrong.name) }
      var upstream = known.map { upstreams[$0] } ?? Upstream(name: wrong.name, url: url)
      upstream.url = url
      if !ServerURL.areOfOneServer(wrong.url, url), hasOfItsOwn(upstream) {
        // A secret that was typed for the other one is not stored.
        secrets[upstream.tokenFile ?? ""] = nil
        try askForSecretsAndRights(of: &upstream, wrong)
      }
      if let known { upstreams[known] = upstream } else { upstreams.append(upstream) }
    default: return false
    }
    return true
  }

  /// Whether it has, here or in the configuration, what is for its own server only.
  private func hasOfItsOwn(_ upstream: Upstream) -> Bool {
    if upstream.tokenFile != nil || upstream.user != nil || upstream.allow != nil { return true }
    guard let existing, let place = existing.upstreams.firstIndex(where: { $0.name.isExactly(upstream.name) }) else {
      return false
    }
    return ["token_file", "password_file", "user", "allow"].contains { existing.has($0, ofUpstream: place) }
  }

  /// Nodes cannot send to a radio whose advert they have not received.
  mutating func askForAdvert() throws {
    guard existing?.flag("radio", "advert_when_new") == nil else { return }
    advertises = try Dialogue.yes("Announce the radio to its direct neighbours (one advert)?", standard: true)
  }

  mutating func askForUpstreams() throws {
    let stays = existing?.upstreams ?? []
    for upstream in stays { print("keeping \(upstream.name): \(upstream.url)") }
    let isFirst = upstreams.isEmpty && stays.isEmpty
    while try Dialogue.yes(
      isFirst && upstreams.isEmpty ? "Forward messages to a server?" : "Add another server?", standard: false)
    {
      let url = try askForURL("URL (https://… for a hub, mqtts://… for a broker, empty: no server)", mayBeEmpty: true)
      if url.isEmpty { return }
      var upstream = try Upstream(url, number: upstreams.count + 1)
      if let linked = configuredLink(to: url) {
        guard try Dialogue.yes("\(Self.twoLinks(linked)): change its token?", standard: false) else { continue }
        upstream.name = linked
      } else {
        upstream.name = try askForName(upstream)
      }
      let old = stays.first { $0.name.isExactly(upstream.name) }
      try askForSecretsAndRights(of: &upstream, old)
      // The package's gateway stores what a radio on USB hears before it has a server. A hub that begins now would show hardly a node.
      if old == nil, !upstream.isBroker, access(store, F_OK) == 0 {
        upstream.from = try UpstreamStart.ask(upstream.name)
      }
      upstreams.append(upstream)
    }
  }

  /// `old`: the upstream whose place it takes. Its user, secret and rights are for its own server: another one does not get them.
  private mutating func askForSecretsAndRights(
    of upstream: inout Upstream, _ old: ConfigurationText.Upstream?
  ) throws {
    try askForSecrets(of: &upstream, old)
    let maySend = try Dialogue.yes("May \(upstream.name) send messages by this radio?", standard: false)
    upstream.allow = maySend ? ["send"] : []
  }

  private mutating func askForSecrets(of upstream: inout Upstream, _ old: ConfigurationText.Upstream?) throws {
    let stay = old.map { ServerURL.areOfOneServer($0.url, upstream.url) } ?? false
    let none = stay ? "empty: as before" : "empty: none"
    // An empty one removes what is there.
    let otherwise: String? = stay ? nil : ""
    if upstream.isBroker {
      let user = try Dialogue.line("User name (\(none))", standard: "")
      upstream.user = user.isEmpty ? otherwise : user
    } else {
      upstream.user = otherwise
    }
    let isToken = !upstream.isBroker
    let secret = try Dialogue.secret("\(isToken ? "Token" : "Password") (\(none))") {
      isToken ? Self.trouble(ofToken: $0) : nil
    }
    upstream.tokenFile = secret.map { keep($0, as: "\(upstream.name).token") } ?? otherwise
  }

  /// The upstream of the configuration that has a link to this hub, and that this setup has not changed yet.
  private func configuredLink(to url: String) -> String? {
    guard let rival = rival(at: url, besides: nil), !upstreams.contains(where: { $0.name.isExactly(rival) }) else {
      return nil
    }
    return existing?.upstreams.first { $0.name.isExactly(rival) }?.name
  }

  /// `besides`: the upstream that gets the URL, if it has a name already.
  private func askForURL(_ question: String, besides name: String? = nil, mayBeEmpty: Bool = false) throws -> String {
    try Dialogue.fitting(question) { typed in
      if typed.isEmpty, mayBeEmpty { return .fits(typed) }
      let url = ServerURL.plain(typed)
      guard ServerURL(url) != nil else { return .unfit(ServerURL.form) }
      if let rival = rival(at: url, besides: name), !mayBeEmpty || configuredLink(to: url) == nil {
        return .unfit(Self.twoLinks(rival))
      }
      return .fits(url)
    }
  }

  /// Asks for a name. It replaces an upstream of the same name only with consent.
  private func askForName(_ upstream: Upstream) throws -> String {
    try Dialogue.fitting("Name", standard: freeName(upstream)) { name in
      guard Self.isName(name) else { return .unfit(Self.names) }
      guard !added.contains(where: { $0.name.isExactly(name) }) else { return .unfit(Self.isAdded(name)) }
      guard !upstreams.contains(where: { $0.name.isExactly(name) }) else { return .unfit("\(name) was added just now") }
      guard let old = existing?.upstreams.first(where: { $0.name.isExactly(name) }) else { return .fits(name) }
      return try Dialogue.yes("\(name) is \(old.url): replace it?", standard: false)
        ? .fits(name) : .unfit("another name")
    }
  }
}
