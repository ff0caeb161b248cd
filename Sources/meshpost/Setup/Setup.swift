// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import Escaping
import Glibc
import JSON
import Transport

/// The first run: finds the radio, asks for servers, writes the configuration, starts the gateway, and tries it all out.
struct SetupCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "setup", abstract: "Set the gateway of this machine up: radio, servers, configuration, service.",
    discussion: """
      Asks for what it is not told; with --unattended it asks nothing. What is configured already stays: what it is told changes \
      that, or is added to it, and the same again changes nothing. The configuration as it was is kept beside the new one. \
      What the gateway is called changes with --name alone. Secrets come from files, or are typed in without an echo; they are kept for root alone. \
      Ends with 0 when the gateway runs and everything answers; 69 when it runs and something does not answer yet.
      """)

  @Option(help: "Where the radio is: serial:…, ble:…, tcp:…, auto:.") var link: String?
  @Option(help: "Only the radio whose public key begins so (8 hex digits or more).") var key: String?
  @Option(help: "The file whose first line is the PIN of a Bluetooth radio.", completion: .file()) var pinFile: String?
  @Option(help: "What the gateway is called upstream.") var name: String?
  @Option(help: "A hub or broker to forward to: [NAME=]URL. May be repeated.") var upstream: [String] = []
  @Option(help: "The file with an upstream's token or password: [NAME=]FILE. May be repeated.", completion: .file())
  var tokenFile: [String] = []
  @Option(help: "The user at an MQTT broker: [NAME=]USER. May be repeated.") var user: [String] = []
  @Option(help: "The configuration that is written.", completion: .file()) var config = "/etc/meshpost/meshpostd.toml"
  @Flag(help: "Ask nothing.") var unattended = false
  @Flag(help: "Begin anew: of what is configured nothing is taken over but the gateway's name. It is kept beside.")
  var replace = false
  @Flag(help: "Do not advertise the radio. Else it tells its direct neighbours once who it is.") var noAdvert = false
  @Flag(help: "Only write the configuration; do not start the gateway.") var noStart = false

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
    // Else the daemon says so, when it looks at its configuration.
    if noStart { setup.warn() } else { try setup.start() }
  }
}

/// What is going to be configured.
struct Setup {
  let config: String
  let isUnattended: Bool
  /// `nil`: as it is configured, or found by itself.
  var link: String?
  var key: String?
  var pinFile: String?
  var name: String?
  var upstreams: [Upstream] = []
  /// Once, when the gateway first has this radio; `nil`: as it is configured, else it does.
  var advertises: Bool?
  /// What is configured, when that is what it begins with.
  var existing: ConfigurationText?

  init(config: String, isUnattended: Bool) {
    self.config = config
    self.isUnattended = isUnattended
  }

  // MARK: The pieces

  static let mark = "# Written by `meshpost setup`"

  /// What is there is where it begins, unless it is told to begin anew.
  mutating func lookAround(beginsAnew: Bool) throws {
    let folder = Folder.of(config)
    guard access(folder, W_OK) == 0 else {
      throw Failure.say("\(folder) cannot be written: run `sudo meshpost setup`", EX_NOPERM)
    }
    guard let old = try InputFile.text(config) else { return }
    if beginsAnew {
      // `try?`: what cannot be read has no name that could be kept.
      name = (try? ConfigurationText(old, location: config))?.string("gateway", "id")
    } else {
      let text = try ConfigurationText(old, location: config)
      // As the package brought it, every key commented out, it says nothing.
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
      guard !isUnattended, !Dialogue.yes("The radio stays at \(configured)?", standard: true) else { return }
    }
    let found = Probing.look(at: SerialDevices.all(), besides: Probing.radioInUse())
    let radios = found.filter(\.isRadio)
    for device in found { print("\(device.device)  \(device.words)") }
    if isUnattended {
      // With a key it is found by that; else where it is now.
      if key == nil, radios.count == 1 { self.link = "serial:\(radios[0].device)" }
      if key == nil, radios.count > 1 { throw Failure.say("there are several radios: say --link or --key", EX_CONFIG) }
      return
    }
    try choose(radios)
    try askForPIN()
  }

  private mutating func choose(_ radios: [Probing.Found]) throws {
    for (number, radio) in radios.enumerated() { print("  \(number + 1)  \(radio.device)  \(radio.words)") }
    print("  b  a radio over Bluetooth")
    print("  t  a radio on the network (Wi-Fi, Ethernet)")
    print("  a  the one that will be plugged in")
    let answer = Dialogue.line("Which radio?", standard: radios.isEmpty ? "a" : "1")
    switch answer {
    case "a": link = "auto:"
    case "b": link = "ble:" + Dialogue.line("Its name or address (empty: the only one in range)", standard: "")
    case "t": link = "tcp:" + Dialogue.line("Its address, HOST or HOST:PORT", standard: "")
    default:
      guard let number = UInt16(answer).map(Int.init), radios.indices.contains(number - 1) else {
        throw Failure.say("\"\(answer)\" is none of them", EX_USAGE)
      }
      link = "serial:\(radios[number - 1].device)"
    }
    do { _ = try LinkAddress(parsing: link ?? "auto:") } catch { throw Failure.say("\(error)", EX_USAGE) }
  }

  private mutating func askForPIN() throws {
    guard link?.hasPrefix("ble:") == true, pinFile == nil, existing?.string("radio", "pin_file") == nil, !isUnattended
    else { return }
    guard let pin = Dialogue.secret("The PIN that it shows or was given (empty: none)") else { return }
    pinFile = try keep(pin, as: Self.nameOfPIN)
  }

  /// Nobody can write to a radio that they have not heard of.
  mutating func askForAdvert() {
    guard existing?.flag("radio", "advert_when_new") == nil else { return }
    advertises = Dialogue.yes("Tell the radio's direct neighbours who it is (an advert, once)?", standard: true)
  }

  /// Of what it was told.
  func warn() {
    for upstream in upstreams where upstream.tokenFile != nil {
      if let words = upstream.warning { Console.error("warning: \(words)") }
    }
  }

  mutating func askForUpstreams() throws {
    let stays = existing?.upstreams ?? []
    for upstream in stays { print("\(upstream.name) stays: \(upstream.url)") }
    let isFirst = upstreams.isEmpty && stays.isEmpty
    while Dialogue.yes(
      isFirst && upstreams.isEmpty ? "Forward messages to a server?" : "To another one?", standard: false)
    {
      let url = Dialogue.line("Its address (https://… for a hub, mqtts://… for a broker)", standard: "")
      guard url.contains("://") else {
        print("that is no address")
        continue
      }
      var upstream = try Upstream(url, number: upstreams.count + 1, tokens: [], users: [])
      upstream.name = Dialogue.line("A name for it", standard: freeName(upstream))
      if upstream.isBroker {
        let user = Dialogue.line("The user there (empty: none)", standard: "")
        upstream.user = user.isEmpty ? nil : user
      }
      if let words = upstream.warning { Console.error("warning: \(words)") }
      if let secret = Dialogue.secret(upstream.isBroker ? "The password (empty: none)" : "The token (empty: none)") {
        upstream.tokenFile = try keep(secret, as: "\(upstream.name).token")
      }
      upstreams.append(upstream)
    }
  }
}
