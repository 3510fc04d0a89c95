output "inventory" {
  description = "The hosts as an Ansible inventory; `address` is the one inside the zone."
  value = join("\n", concat(
    [for name, host in aws_instance.host :
    "[${name}]\n${name}-1 ansible_host=${host.public_ip} address=${host.private_ip}"],
    ["[all:vars]\nansible_user=admin\n"],
  ))
}
