// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import Escaping
import Glibc
import JSON
import Transport

/// First-time setup: finds the radio, asks for servers, writes the configuration, starts the gateway, and tests it.
struct SetupCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "setup", abstract: "Set up the gateway on this machine: radio, servers, configuration, service.",
    discussion: """
      Prompts for everything that is not given by options; with --unattended it never prompts. An existing configuration is \
      kept: options change it or add to it, and repeating them changes nothing. The previous configuration is saved beside \
      the new one. The gateway's name changes only with --name. Secrets are read from files or typed without echo, and \
      stored readable by root only. Exits with 0 if the gateway runs and everything answers, with 69 if it runs and \
      something does not answer yet.
      """)

  @Option(help: "The radio's link: serial:…, ble:…, tcp:…, auto:.") var link: String?
  @Option(help: "Only accept the radio with this public key prefix (8 hex digits or more).") var key: String?
  @Option(help: "The file whose first line is the PIN of a Bluetooth radio.", completion: .file()) var pinFile: String?
  @Option(help: "The gateway's name for upstreams.") var name: String?
  @Option(help: "A hub or broker to forward to: [NAME=]URL. May be repeated.") var upstream: [String] = []
  @Option(help: "The file with an upstream's token or password: [NAME=]FILE. May be repeated.", completion: .file())
  var tokenFile: [String] = []
  @Option(help: "The user name for an MQTT broker: [NAME=]USER. May be repeated.") var user: [String] = []
  @Option(help: "The configuration file to write.", completion: .file()) var config = "/etc/meshpost/meshpostd.toml"
  @Flag(help: "Never prompt.") var unattended = false
  @Flag(help: "Start over: keep only the gateway's name. The old configuration is saved.")
  var replace = false
  @Flag(help: "Do not advertise the radio. By default an advert is sent once to direct neighbours.") var noAdvert =
    false
  @Flag(help: "Write the configuration without starting the gateway.") var noStart = false

  func run() throws {
    var setup = Setup(config: config, isUnattended: unattended)
    try setup.lookAround(beginsAnew: replace)
    try setup.chooseRadio(link: link, key: key, pinFile: pinFile)
    if let name { setup.name = name }
    if noAdvert { setup.advertises = false }
    for (place, text) in upstream.enumerated() {
      setup.upstreams.append(try Setup.Upstream(text, number: place + 1, tokens: tokenFile, users: user))
    }
    setup.settleNames()
    if !unattended { try setup.askForUpstreams() }
    if !unattended, !noAdvert { setup.askForAdvert() }
    try setup.writeConfiguration()
    // With a start, the daemon prints the warnings when it checks its configuration.
    if noStart { setup.warn() } else { try setup.start() }
  }
}

/// The settings to be written.
struct Setup {
  let config: String
  let isUnattended: Bool
  /// `nil`: as configured, or found automatically.
  var link: String?
  var key: String?
  var pinFile: String?
  var name: String?
  var upstreams: [Upstream] = []
  /// Once, when the gateway first connects to this radio; `nil`: as configured, else yes.
  var advertises: Bool?
  /// The existing configuration, if setup edits it.
  var existing: ConfigurationText?

  init(config: String, isUnattended: Bool) {
    self.config = config
    self.isUnattended = isUnattended
  }

  // MARK: Steps

  static let mark = "# Written by `meshpost setup`"

  /// Reads the existing configuration as the starting point, unless starting over.
  mutating func lookAround(beginsAnew: Bool) throws {
    let folder = Folder.of(config)
    guard access(folder, W_OK) == 0 else {
      throw Failure.say("cannot write to \(folder): run `sudo meshpost setup`", EX_NOPERM)
    }
    guard let old = try InputFile.text(config) else { return }
    if beginsAnew {
      // `try?`: an unreadable configuration has no name to keep.
      name = (try? ConfigurationText(old, location: config))?.string("gateway", "id")
    } else {
      let text = try ConfigurationText(old, location: config)
      // In the packaged file every key is commented out.
      existing = text.isEmpty ? nil : text
    }
  }

  mutating func chooseRadio(link: String?, key: String?, pinFile: String?) throws {
    (self.key, self.pinFile) = (key, pinFile)
    if let link {
      do { _ = try LinkAddress(parsing: link) } catch { throw ValidationError("--link: \(error)") }
      self.link = link
      return try askForPIN()
    }
    if let configured = existing?.string("radio", "link") {
      guard !isUnattended, !Dialogue.yes("Keep the radio at \(configured)?", standard: true) else { return }
    }
    let found = Probing.look(at: SerialDevices.all(), besides: Probing.radioInUse())
    let radios = found.filter(\.isRadio)
    for device in found { print("\(device.device)  \(device.description)") }
    if isUnattended {
      // With a key the daemon finds it by that; otherwise use its current device.
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
    let answer = Dialogue.line("Which radio?", standard: radios.isEmpty ? "a" : "1")
    switch answer {
    case "a": link = "auto:"
    case "b": link = "ble:" + Dialogue.line("Name or address (empty: the only one in range)", standard: "")
    case "t": link = "tcp:" + Dialogue.line("Address, HOST or HOST:PORT", standard: "")
    default:
      guard let number = UInt16(answer).map(Int.init), radios.indices.contains(number - 1) else {
        throw Failure.say("invalid choice: \"\(answer)\"", EX_USAGE)
      }
      link = "serial:\(radios[number - 1].device)"
    }
    do { _ = try LinkAddress(parsing: link ?? "auto:") } catch { throw Failure.say("\(error)", EX_USAGE) }
  }

  private mutating func askForPIN() throws {
    guard link?.hasPrefix("ble:") == true, pinFile == nil, existing?.string("radio", "pin_file") == nil, !isUnattended
    else { return }
    guard let pin = Dialogue.secret("The PIN from its display or settings (empty: none)") else { return }
    pinFile = try keep(pin, as: Self.nameOfPIN)
  }

  /// Nodes cannot send to a radio whose advert they have not received.
  mutating func askForAdvert() {
    guard existing?.flag("radio", "advert_when_new") == nil else { return }
    advertises = Dialogue.yes("Announce the radio to its direct neighbours (one advert)?", standard: true)
  }

  /// Prints warnings about the given upstreams.
  func warn() {
    for upstream in upstreams where upstream.tokenFile != nil {
      if let warning = upstream.warning { Console.error("warning: \(warning)") }
    }
  }

  mutating func askForUpstreams() throws {
    let stays = existing?.upstreams ?? []
    for upstream in stays { print("keeping \(upstream.name): \(upstream.url)") }
    let isFirst = upstreams.isEmpty && stays.isEmpty
    while Dialogue.yes(
      isFirst && upstreams.isEmpty ? "Forward messages to a server?" : "Add another server?", standard: false)
    {
      let url = Dialogue.line("URL (https://… for a hub, mqtts://… for a broker)", standard: "")
      guard url.contains("://") else {
        print("not a URL")
        continue
      }
      var upstream = try Upstream(url, number: upstreams.count + 1, tokens: [], users: [])
      upstream.name = Dialogue.line("Name", standard: freeName(upstream))
      if upstream.isBroker {
        let user = Dialogue.line("User name (empty: none)", standard: "")
        upstream.user = user.isEmpty ? nil : user
      }
      if let warning = upstream.warning { Console.error("warning: \(warning)") }
      if let secret = Dialogue.secret(upstream.isBroker ? "Password (empty: none)" : "Token (empty: none)") {
        upstream.tokenFile = try keep(secret, as: "\(upstream.name).token")
      }
      upstreams.append(upstream)
    }
  }
}
