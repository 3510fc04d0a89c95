# One zone, one placement group, three hosts: load, pooler, database.

data "aws_ami" "debian" {
  most_recent = true
  owners      = ["136693071363"] # Debian

  filter {
    name   = "name"
    values = ["debian-13-amd64-*"]
  }
}

resource "aws_vpc" "bench" {
  cidr_block           = "10.64.0.0/24"
  enable_dns_hostnames = true
  tags                 = { Name = var.name }
}

resource "aws_internet_gateway" "bench" {
  vpc_id = aws_vpc.bench.id
  tags   = { Name = var.name }
}

resource "aws_subnet" "bench" {
  vpc_id                  = aws_vpc.bench.id
  cidr_block              = aws_vpc.bench.cidr_block
  availability_zone       = "${var.region}${var.zone}"
  map_public_ip_on_launch = true
  tags                    = { Name = var.name }
}

resource "aws_route_table" "bench" {
  vpc_id = aws_vpc.bench.id
  tags   = { Name = var.name }

  route {
    cidr_block = "0.0.0.0/0"
    gateway_id = aws_internet_gateway.bench.id
  }
}

resource "aws_route_table_association" "bench" {
  subnet_id      = aws_subnet.bench.id
  route_table_id = aws_route_table.bench.id
}

resource "aws_security_group" "bench" {
  name        = var.name
  description = "SSH from one network; everything among the hosts; packages from outside."
  vpc_id      = aws_vpc.bench.id
  tags        = { Name = var.name }
}

resource "aws_vpc_security_group_ingress_rule" "ssh" {
  security_group_id = aws_security_group.bench.id
  cidr_ipv4         = var.ssh_cidr
  ip_protocol       = "tcp"
  from_port         = 22
  to_port           = 22
}

resource "aws_vpc_security_group_ingress_rule" "among" {
  security_group_id            = aws_security_group.bench.id
  referenced_security_group_id = aws_security_group.bench.id
  ip_protocol                  = "-1"
}

resource "aws_vpc_security_group_egress_rule" "out" {
  security_group_id = aws_security_group.bench.id
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "-1"
}

resource "aws_placement_group" "bench" {
  name     = var.name
  strategy = "cluster"
}

resource "aws_key_pair" "bench" {
  key_name   = var.name
  public_key = var.public_key
}

resource "aws_instance" "host" {
  for_each = var.instance_types

  ami                                  = data.aws_ami.debian.id
  instance_type                        = each.value
  subnet_id                            = aws_subnet.bench.id
  vpc_security_group_ids               = [aws_security_group.bench.id]
  placement_group                      = aws_placement_group.bench.id
  key_name                             = aws_key_pair.bench.key_name
  instance_initiated_shutdown_behavior = "terminate"
  user_data                            = "#!/bin/sh\nshutdown -h +${var.hours * 60}\n"
  tags                                 = { Name = "${var.name}-${each.key}" }

  metadata_options {
    http_tokens = "required"
  }

  root_block_device {
    volume_type = "gp3"
    volume_size = 30
    encrypted   = true
  }
}
